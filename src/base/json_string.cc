#include "base/json_string.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace piper {

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = byte < 0x80 ? 1 : utf8_length(text.substr(i));
    if (length == 0) {
      out += "\\ufffd";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      if (byte == '"' || byte == '\\') out += '\\';
      out += text.substr(i, length);
    }
    i += std::max<size_t>(1, length);
  }
  out += '"';
}

}  // namespace piper
