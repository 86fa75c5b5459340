#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "plan/memory_report.h"
#include "schedule/schedule_text.h"
#include "tools/commands.h"
#include "tools/hint_line.h"
#include "tools/step_line.h"

namespace piper {

std::string summary_json(const Compiled& compiled, const std::vector<EqualCopies>& saved,
                         const std::vector<Hint>& hints) {
  using nlohmann::ordered_json;
  const Plan& plan = compiled.plan;
  ordered_json out;
  out["version"] = 1;
  out["model"] = plan.model;
  add_step_to(out, compiled);
  out["hash"] = fmt::format("{:016x}", hash(plan));
  out["nodes"] = compiled.linear.dag.nodes.size();
  out["edges"] = compiled.linear.dag.edges.size();
  out["streams"] = plan.streams;
  for (const Directive& directive : compiled.schedule.directives) out["schedule"].push_back(print(directive.body));
  for (const PlanTemplate& t : plan.templates) {
    ordered_json entry;
    const MemoryPeak peak = memory_peak(plan, t);
    entry["devices"] = t.devices;
    entry["operations"] = t.ops.size();
    entry["peak_bytes"] = peak.total;
    for (int c = 0; c < category_count; ++c)
      entry["peak_by_category"][std::string(name(static_cast<Category>(c)))] = peak.by_category[static_cast<size_t>(c)];
    if (peak.op.valid()) entry["peak_operation"] = describe(plan, t, peak.op);
    for (const MemoryOwner& owner : peak.largest)
      entry["largest"].push_back({{"name", owner.name}, {"bytes", owner.bytes}, {"buffers", owner.buffers}});
    out["templates"].push_back(std::move(entry));
  }
  for (const auto& [processes, bytes] : saved)
    out["checkpoint"].push_back({{"processes", processes}, {"host_bytes", bytes}});
  add_hints_to(out, hints);
  return out.dump(2) + "\n";
}

}  // namespace piper
