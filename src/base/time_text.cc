#include "base/time_text.h"

#include <fmt/format.h>

#include <cmath>

namespace piper {

std::string human_seconds(double seconds) {
  const double size = std::abs(seconds);
  if (size == 0) return "0 s";
  if (size < 999.5e-9) return fmt::format("{:.3g} ns", seconds * 1e9);
  if (size < 999.5e-6) return fmt::format("{:.3g} us", seconds * 1e6);
  if (size < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (size < 999.5) return fmt::format("{:.3g} s", seconds);
  return fmt::format("{:.0f} s", seconds);
}

}  // namespace piper
