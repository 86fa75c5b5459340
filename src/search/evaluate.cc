#include "search/evaluate.h"

#include <fmt/format.h>

#include <tuple>

#include "compile/compile.h"

namespace piper {
namespace {

int devices_of(const Schedule& schedule) {
  int devices = 0;
  for (const Directive& directive : schedule.directives) {
    if (const auto* given = std::get_if<Devices>(&directive.body)) devices = given->count;
    if (const auto* mesh = std::get_if<Mesh>(&directive.body)) {
      devices = 1;
      for (const MeshAxis& axis : mesh->axes) devices *= axis.size;
    }
  }
  return devices;
}

}  // namespace

Result<Evaluated> evaluate(const std::shared_ptr<const ModelGraph>& model, const Schedule& schedule,
                           const Cluster& cluster, const std::optional<CostTable>& costs) {
  CompileOptions options;
  options.cluster = cluster;
  for (DeviceKind& kind : options.cluster.kinds) kind.memory.reset();  // what does not fit has a price too
  options.costs = costs;
  PIPER_TRY(const Compiled compiled, compile(model, schedule, options));
  const CostTable* measured = costs ? &*costs : nullptr;
  PIPER_TRY(const Simulation simulation, simulate(compiled.plan, cluster, measured));
  Evaluated out;
  out.schedule = schedule;
  out.nodes = compiled.linear.dag.nodes.size();
  out.report = step_report(*model, compiled.plan, cluster, simulation);
  for (const PlanTemplate& of : compiled.plan.templates) {
    const MemoryPeak peak = memory_peak(compiled.plan, of);
    for (const int device : of.devices) {
      const auto& memory = kind_of(cluster, device).memory;
      if (memory && peak.total > *memory) out.fits = false;
    }
    if (peak.total <= out.memory.total) continue;
    out.memory = peak;
    out.capacity = kind_of(cluster, of.devices[0]).memory;
  }
  return out;
}

Result<Evaluated> evaluate(const Problem& problem, const Candidate& candidate) {
  PIPER_TRY(const std::shared_ptr<const ModelGraph> model, model_for(problem, candidate));
  PIPER_TRY(Evaluated out,
            evaluate(model, schedule_of(candidate, facts_for(problem, candidate)), problem.cluster, problem.costs));
  out.candidate = candidate;
  return out;
}

Result<Evaluated> evaluate(const Problem& problem, const std::string& name, const Schedule& schedule) {
  if (const int devices = devices_of(schedule); devices != problem.limits.devices)
    return error(ErrorCode::E207, schedule.directives.empty() ? SourceRange{} : schedule.directives[0].where,
                 fmt::format("{} is for {} devices; the search is for {}", name, devices, problem.limits.devices))
        .help(fmt::format("write --devices {}, or another mesh", devices));
  PIPER_TRY(const std::shared_ptr<const ModelGraph> model,
            load_model_for(schedule,
                           [&](LayerForm layers, TokenForm tokens) { return problem.models->get(layers, tokens); }));
  PIPER_TRY(Evaluated out, evaluate(model, schedule, problem.cluster, problem.costs));
  out.name = name;
  return out;
}

bool better(const Evaluated& a, const Evaluated& b) {
  return std::tuple(!a.fits, a.report.seconds, a.memory.total) < std::tuple(!b.fits, b.report.seconds, b.memory.total);
}

}  // namespace piper
