#include "train/checkpoint_config.h"

#include <array>
#include <charconv>
#include <utility>

namespace piper {

std::optional<CheckpointInterval> parse_interval(std::string_view text) {
  int64_t number = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || number <= 0 || number > 1'000'000'000'000) return {};
  const std::string_view unit = text.substr(static_cast<size_t>(rest - text.data()));
  if (unit.empty()) return CheckpointInterval{number, 0};
  constexpr std::array<std::pair<std::string_view, double>, 4> units = {
      {{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}}};
  for (const auto& [name, seconds] : units)
    if (unit == name) return CheckpointInterval{0, static_cast<double>(number) * seconds};
  return {};
}

}  // namespace piper
