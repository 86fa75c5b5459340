#include <fmt/format.h>

#include <map>

#include "plan/verify_plan.h"

namespace piper {
namespace {

/// A partition, or a pair of groups, on one stream.
struct ProcessGroup {
  PlanStreamId stream;
  PartitionId over;
  GroupId from, to;
  friend auto operator<=>(const ProcessGroup&, const ProcessGroup&) = default;
};

}  // namespace

Checked verify_collective_order(const Plan& plan) {
  struct Sequence {
    TemplateId on;
    std::vector<OpId> ops;
  };
  std::map<ProcessGroup, std::vector<Sequence>> sequences;
  for (const TemplateId t : plan.templates.ids()) {
    std::map<ProcessGroup, std::vector<OpId>> mine;
    for (const OpId i : plan.templates[t].ops.ids()) {
      const PlannedOp& op = plan.templates[t].ops[i];
      if (!op.communication.valid() || op.kind == OpKind::Send || op.kind == OpKind::Recv) continue;
      const Communication& comm = plan.communications[op.communication];
      mine[{op.stream, comm.over, comm.from, comm.to}].push_back(i);
    }
    for (auto& [group, ops] : mine) sequences[group].push_back({t, std::move(ops)});
  }
  for (const auto& [group, list] : sequences) {
    const PlanTemplate& first = plan.templates[list[0].on];
    for (const Sequence& other : list) {
      const PlanTemplate& of = plan.templates[other.on];
      for (size_t i = 0; i < std::min(list[0].ops.size(), other.ops.size()); ++i) {
        const OpId a = list[0].ops[i], b = other.ops[i];
        if (first.ops[a].communication == of.ops[b].communication) continue;
        return error(ErrorCode::E402, {},
                     fmt::format("devices {} and {} issue collectives of one communicator in different order",
                                 first.devices[0], of.devices[0]))
            .note({}, describe(plan, first, a))
            .note({}, describe(plan, of, b))
            .help("issue them in the same order on all devices");
      }
    }
  }
  return Ok{};
}

}  // namespace piper
