// Sizes in bytes, as people write and read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace piper {

/// `25MB` = 25,000,000; `16GiB` = 16 * 2^30; `512` or `512B` = bytes. Nothing if malformed, negative or too large.
std::optional<int64_t> parse_bytes(std::string_view text);

/// The exact text that parse_bytes reads back: the largest decimal unit that divides.
std::string print_bytes(int64_t bytes);

/// For tables: three significant digits and a binary unit, `1.50 GiB`.
std::string human_bytes(int64_t bytes);

}  // namespace piper
