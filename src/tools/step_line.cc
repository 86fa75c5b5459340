#include "tools/step_line.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "schedule/schedule_text.h"

namespace piper {
namespace {

std::string cluster_text(const std::string& given) {
  if (!given.empty()) return fmt::format("cluster {}", given);
  const Cluster assumed;
  return fmt::format("no --cluster: {:.0f} TFLOPS, {:.0f} TB/s and links of {:.0f} GB/s assumed",
                     assumed.kinds[0].peak[0] * 1e-12, assumed.kinds[0].memory_bandwidth * 1e-12,
                     assumed.levels[0].bandwidth * 1e-9);
}

}  // namespace

std::string model_line(const Compiled& compiled, const CompileInput& input) {
  const StepConfig& step = compiled.linear.dag.model->step;
  return fmt::format("{}, batch {} x {} tokens; {}\n", compiled.plan.model, step.batch, step.sequence,
                     cluster_text(input.cluster));
}

std::string step_line(const Compiled& compiled, const CompileInput& input) {
  const int devices = compiled.linear.dag.devices;
  const DeviceList& lost = compiled.linear.dag.lost;
  const std::string gone = lost.empty() ? "" : fmt::format(" without {}", print_devices(lost));
  std::string axes;
  for (const MeshAxis& axis : compiled.linear.dag.mesh)
    axes += fmt::format("{}{}={}", axes.empty() ? ": " : " x ", axis.name, axis.size);
  return model_line(compiled, input) + fmt::format("{} device{}{}{}\n", devices, devices == 1 ? "" : "s", axes, gone);
}

void add_step_to(nlohmann::ordered_json& out, const Compiled& compiled) {
  const StepConfig& step = compiled.linear.dag.model->step;
  out["batch"] = step.batch;
  out["sequence"] = step.sequence;
  out["device_count"] = compiled.linear.dag.devices;
  if (!compiled.linear.dag.lost.empty()) out["lost"] = compiled.linear.dag.lost;
  out["mesh"] = nlohmann::ordered_json::object();
  for (const MeshAxis& axis : compiled.linear.dag.mesh) out["mesh"][axis.name] = axis.size;
}

}  // namespace piper
