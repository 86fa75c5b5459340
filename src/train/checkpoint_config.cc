#include "train/checkpoint_config.h"

#include <charconv>

#include "base/time_text.h"

namespace piper {

std::optional<CheckpointInterval> parse_interval(std::string_view text) {
  int64_t number = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || number <= 0 || number > 1'000'000'000'000) return {};
  const std::string_view unit = text.substr(static_cast<size_t>(rest - text.data()));
  if (unit.empty()) return CheckpointInterval{number, 0};
  const auto seconds = seconds_in(unit);
  return seconds ? std::optional(CheckpointInterval{0, static_cast<double>(number) * *seconds}) : std::nullopt;
}

}  // namespace piper
