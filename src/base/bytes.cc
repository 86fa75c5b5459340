#include "base/bytes.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace piper {
namespace {

struct Unit {
  std::string_view name;
  int64_t bytes;
};
constexpr Unit units[] = {
    {"TB", 1'000'000'000'000}, {"GB", 1'000'000'000}, {"MB", 1'000'000},  {"KB", 1'000}, {"TiB", 1ll << 40},
    {"GiB", 1ll << 30},        {"MiB", 1ll << 20},    {"KiB", 1ll << 10}, {"B", 1},      {"", 1}};

}  // namespace

std::optional<int64_t> parse_bytes(std::string_view text) {
  int64_t whole = 0;  // first: exact where a double is not
  const auto [suffix_begin, no_number] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (no_number == std::errc()) {
    const std::string_view suffix(suffix_begin, static_cast<size_t>(text.data() + text.size() - suffix_begin));
    for (const Unit& unit : units) {
      int64_t bytes = 0;
      if (suffix != unit.name) continue;
      if (__builtin_mul_overflow(whole, unit.bytes, &bytes) || bytes < 0) return std::nullopt;
      return bytes;
    }
  }
  double value = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc()) return std::nullopt;
  const std::string_view suffix(rest, static_cast<size_t>(text.data() + text.size() - rest));
  for (const Unit& unit : units) {
    if (suffix != unit.name) continue;
    const double bytes = value * static_cast<double>(unit.bytes);
    if (!(bytes >= 0) || bytes > 9e18 || bytes != std::floor(bytes)) return std::nullopt;
    return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

std::string print_bytes(int64_t bytes) {
  for (const Unit& unit : units)
    if (bytes >= unit.bytes && bytes % unit.bytes == 0 && unit.name.size() == 2)
      return fmt::format("{}{}", bytes / unit.bytes, unit.name);
  return fmt::format("{}", bytes);
}

std::string human_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB", "PiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, unit);
}

}  // namespace piper
