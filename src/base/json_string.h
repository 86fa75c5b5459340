// Text as a JSON string, whatever bytes it has.
#pragma once

#include <string>
#include <string_view>

namespace piper {

/// With quotes and escapes. Bytes that are no UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

}  // namespace piper
