#include "plan/memory_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/saturate.h"
#include "base/text_table.h"
#include "plan/issue_order_memory.h"

namespace piper {
namespace {

/// Buffers alive while an operation runs.
std::vector<BufferId> alive_at(const PlanTemplate& of, OpId op) {
  const FirstTouches touches(of);
  Table<BufferId, char> alive(of.buffers.size(), 0);
  for (const BufferId b : alive.ids()) alive[b] = of.buffers[b].persistent;
  for (const OpId i : of.ops.ids()) {
    for (const BufferId b : touches.of(i)) alive[b] = 1;
    if (i == op) break;
    for (const BufferId b : of.ops[i].frees) alive[b] = 0;
  }
  std::vector<BufferId> out;
  for (const BufferId b : alive.ids())
    if (alive[b]) out.push_back(b);
  return out;
}

}  // namespace

MemoryPeak memory_peak(const Plan& plan, const PlanTemplate& of) {
  MemoryPeak peak;
  const IssueOrderUse use = issue_order_use(of);
  peak.total = use.peak;
  peak.op = use.peak_op;
  std::map<std::pair<NameId, Category>, MemoryOwner> owners;
  for (const BufferId b : alive_at(of, use.peak_op)) {
    const PlanBuffer& buffer = of.buffers[b];
    int64_t& category = peak.by_category[static_cast<size_t>(buffer.category)];
    category = saturating_add(category, buffer.bytes);
    MemoryOwner& owner = owners[{buffer.label.name, buffer.category}];
    owner.name = fmt::format("{} {}", name(buffer.category), plan.names[buffer.label.name]);
    owner.bytes = saturating_add(owner.bytes, buffer.bytes);
    ++owner.buffers;
  }
  for (auto& [key, owner] : owners) peak.largest.push_back(std::move(owner));
  std::stable_sort(peak.largest.begin(), peak.largest.end(),
                   [](const MemoryOwner& a, const MemoryOwner& b) { return a.bytes > b.bytes; });
  peak.largest.resize(std::min<size_t>(8, peak.largest.size()));
  return peak;
}

std::string memory_table(const Plan& plan) {
  std::vector<std::string> header = {"devices", "peak"};
  for (int c = 0; c < category_count; ++c) header.emplace_back(name(static_cast<Category>(c)));
  header.emplace_back("at the peak");
  TextTable table(header);
  MemoryPeak highest;
  int device = 0;
  for (const PlanTemplate& t : plan.templates) {
    const MemoryPeak peak = memory_peak(plan, t);
    if (peak.total > highest.total) {
      highest = peak;
      device = t.devices[0];
    }
    std::vector<std::string> row = {print_devices(t.devices), human_bytes(peak.total)};
    for (const int64_t bytes : peak.by_category) row.push_back(human_bytes(bytes));
    const PlannedOp* op = peak.op.valid() ? &t.ops[peak.op] : nullptr;
    row.push_back(op ? fmt::format("{} {}", name(op->kind), describe(plan, op->label)) : "-");
    table.add(std::move(row));
  }
  std::vector<std::string> owners;
  for (size_t i = 0; i < std::min<size_t>(4, highest.largest.size()); ++i)
    owners.push_back(fmt::format("{} {}", human_bytes(highest.largest[i].bytes), highest.largest[i].name));
  return table.print() + fmt::format("largest on device {}: {}\n", device, fmt::join(owners, ", "));
}

Checked check_capacity(const Plan& plan, const Cluster& cluster) {
  const PlanTemplate* worst = nullptr;
  int device = 0;
  int64_t lacking = 0, capacity = 0;
  size_t too_large = 0, devices = 0;
  for (const PlanTemplate& t : plan.templates) {
    const int64_t needed = issue_order_use(t).peak;
    devices += t.devices.size();
    for (const int d : t.devices) {
      const std::optional<int64_t>& memory = kind_of(cluster, d).memory;
      if (!memory || needed <= *memory) continue;
      ++too_large;
      if (needed - *memory <= lacking) continue;
      lacking = needed - *memory;
      capacity = *memory;
      device = d;
      worst = &t;
    }
  }
  if (worst) {
    const PlanTemplate& t = *worst;
    const MemoryPeak peak = memory_peak(plan, t);
    Diagnostic problem = error(ErrorCode::E405, {},
                               fmt::format("device {} needs {} at its peak; it has {}", device, human_bytes(peak.total),
                                           human_bytes(capacity)));
    if (devices > 1)
      problem.notes.push_back(
          {{}, fmt::format("{} of {} devices need more than they have; this one lacks most", too_large, devices)});
    if (peak.op.valid()) problem.notes.push_back({{}, fmt::format("the peak is at {}", describe(plan, t, peak.op))});
    for (size_t i = 0; i < std::min<size_t>(4, peak.largest.size()); ++i)
      problem.notes.push_back(
          {{},
           fmt::format("{} in {} buffer{} of {}", human_bytes(peak.largest[i].bytes), peak.largest[i].buffers,
                       peak.largest[i].buffers == 1 ? "" : "s", peak.largest[i].name)});
    return problem;
  }
  return Ok{};
}

}  // namespace piper
