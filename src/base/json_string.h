// Text as a JSON string, whatever bytes it has.
#pragma once

#include <string>
#include <string_view>

namespace piper {

/// Bytes of the UTF-8 character at the start of `text`, which is not empty; 0 if there is none.
size_t utf8_length(std::string_view text);

/// With quotes and escapes. Bytes that are no UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

}  // namespace piper
