// The brackets and dotted keys of a TOML text, without reading it properly.
#pragma once

#include <optional>
#include <string_view>

namespace piper {

/// The byte at which brackets and dotted keys together are nested more than `most` levels deep.
std::optional<size_t> nested_deeper_than(std::string_view text, int most);

/// The bracket that is open at the end of the text and was opened last.
std::optional<size_t> open_bracket(std::string_view text);

}  // namespace piper
