// Speeds and times as people write them in cluster files: `450GB/s`, `4us`, `989TFLOPS`.
#pragma once

#include <optional>
#include <string_view>

namespace piper {

enum class Quantity {
  Rate,     // bytes per second: B/s KB/s MB/s GB/s TB/s, and in bits Mbit/s Gbit/s Tbit/s
  Seconds,  // s ms us ns
  Compute,  // operations per second: GFLOPS TFLOPS PFLOPS
};

/// In bytes per second, seconds, operations per second. Nothing if malformed, not finite, or without a unit.
std::optional<double> parse_quantity(Quantity quantity, std::string_view text);

/// `"450GB/s"`: how one is written.
std::string_view example(Quantity quantity);
/// `bytes per second`: what a number without a unit is in.
std::string_view plain_unit(Quantity quantity);
/// The units, for help.
std::string_view units(Quantity quantity);

}  // namespace piper
