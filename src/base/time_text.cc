#include "base/time_text.h"

#include <fmt/format.h>

#include <cmath>

namespace piper {

std::string human_seconds(double seconds) {
  struct Unit {
    double size;
    const char* name;
  };
  constexpr Unit units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  if (seconds == 0) return "0 s";
  for (const Unit& unit : units) {
    const double value = seconds / unit.size, size = std::abs(value);
    if (size < 0.9995 && unit.size > 1e-9) continue;
    return fmt::format("{:.{}f} {}", value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2, unit.name);
  }
  return "";
}

std::optional<double> seconds_in(std::string_view unit) {
  if (unit == "s") return 1;
  if (unit == "min") return 60;
  if (unit == "h") return 3600;
  if (unit == "d") return 86400;
  return std::nullopt;
}

}  // namespace piper
