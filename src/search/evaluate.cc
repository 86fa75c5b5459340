#include "search/evaluate.h"

#include <fmt/format.h>

#include <tuple>

#include "compile/compile.h"

namespace piper {
namespace {

Result<Evaluated> evaluate(const Problem& problem, const std::shared_ptr<const ModelGraph>& model,
                           const Schedule& schedule) {
  CompileOptions options;
  options.cluster = problem.cluster;
  for (DeviceKind& kind : options.cluster.kinds) kind.memory.reset();  // what does not fit has a price too
  options.costs = problem.costs;
  PIPER_TRY(const Compiled compiled, compile(model, schedule, options));
  const CostTable* measured = problem.costs ? &*problem.costs : nullptr;
  PIPER_TRY(const Simulation simulation, simulate(compiled.plan, problem.cluster, measured));
  Evaluated out;
  out.schedule = schedule;
  out.report = step_report(*model, compiled.plan, problem.cluster, simulation);
  for (const PlanTemplate& of : compiled.plan.templates) {
    const MemoryPeak peak = memory_peak(compiled.plan, of);
    for (const int device : of.devices) {
      const auto& memory = kind_of(problem.cluster, device).memory;
      if (memory && peak.total > *memory) out.fits = false;
    }
    if (peak.total <= out.memory.total) continue;
    out.memory = peak;
    out.capacity = kind_of(problem.cluster, of.devices[0]).memory;
  }
  return out;
}

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

Result<Evaluated> evaluate(const Problem& problem, const Candidate& candidate) {
  PIPER_TRY(Evaluated out,
            evaluate(problem, model_for(problem, candidate), schedule_of(candidate, facts_for(problem, candidate))));
  out.candidate = candidate;
  return out;
}

Result<Evaluated> evaluate(const Problem& problem, const std::string& name, const Schedule& schedule) {
  if (const int devices = devices_of(schedule); devices != problem.limits.devices)
    return error(ErrorCode::E207, schedule.directives.empty() ? SourceRange{} : schedule.directives[0].where,
                 fmt::format("{} is for {} devices; the search is for {}", name, devices, problem.limits.devices))
        .help(fmt::format("write --devices {}, or another mesh", devices));
  PIPER_TRY(const std::shared_ptr<const ModelGraph> model, load_model_for(schedule, problem.load));
  PIPER_TRY(Evaluated out, evaluate(problem, model, schedule));
  out.name = name;
  return out;
}

bool better(const Evaluated& a, const Evaluated& b) {
  return std::tuple(!a.fits, a.report.seconds, a.memory.total) < std::tuple(!b.fits, b.report.seconds, b.memory.total);
}

}  // namespace piper
