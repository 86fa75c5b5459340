// What a report is about: the step, its devices, and the cluster that was given or assumed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/commands.h"

namespace piper {

/// `Llama-3-8B, batch 64 x 4096 tokens, cluster h100`; without a cluster: what is assumed.
std::string model_line(const Compiled& compiled, const CompileInput& input);
/// The same, and in a second line the devices: `16 devices: pp=2 x dp=8`.
std::string step_line(const Compiled& compiled, const CompileInput& input);
/// batch, sequence, device_count and mesh.
void add_step_to(nlohmann::ordered_json& out, const Compiled& compiled);

}  // namespace piper
