// Hints of `piper simulate` and `piper check`: what would make the step faster, and the command that shows it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "search/hints.h"
#include "tools/simulate_command.h"

namespace piper {

/// Tried with the same input, on the cluster that was simulated.
std::vector<Hint> hints_of(const CompiledInput& compiled, const Cluster& cluster, const StepReport& report,
                           const CompileInput& input, const LoadedInput& loaded, const SimulationInput& how);

/// Each in a line, with the command that shows it: the one given (`piper check …` or `piper simulate …`), changed.
std::string hint_lines(const std::vector<Hint>& hints, double seconds, const std::vector<std::string>& command_line);
void add_hints_to(nlohmann::ordered_json& out, const std::vector<Hint>& hints);

}  // namespace piper
