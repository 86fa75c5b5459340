// Characters of UTF-8 text.
#pragma once

#include <optional>
#include <string_view>

namespace piper {

/// Bytes of the character at the start of `text`, which is not empty; 0 if there is none.
size_t utf8_length(std::string_view text);

/// The first byte that belongs to no character.
std::optional<size_t> first_not_utf8(std::string_view text);

}  // namespace piper
