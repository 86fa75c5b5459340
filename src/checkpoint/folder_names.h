// Names of checkpoints: `step-00001000`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace piper {

/// Ends the name of a folder that is being written; nobody takes it for a checkpoint.
constexpr std::string_view partial_suffix = ".partial";
/// Ends the name of a folder that is being deleted.
constexpr std::string_view removed_suffix = ".removed";

std::string checkpoint_name(int64_t step);

/// The step of a name that checkpoint_name gives; nothing for all others.
std::optional<int64_t> step_of(std::string_view name);

}  // namespace piper
