#include "checkpoint/folder_names.h"

#include <fmt/format.h>

#include <charconv>

namespace piper {

std::string checkpoint_name(int64_t step) {
  return fmt::format("step-{:08}", step);
}

std::optional<int64_t> step_of(std::string_view name) {
  constexpr std::string_view prefix = "step-";
  int64_t step = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto read = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  if (read.ec != std::errc() || step < 0 || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

}  // namespace piper
