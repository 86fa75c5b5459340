#include <fmt/format.h>

#include <map>

#include "plan/verify_plan.h"

namespace piper {
namespace {

/// One communicator: a partition, or a pair of groups, on one stream.
struct Communicator {
  int stream, over, from, to;
  friend auto operator<=>(const Communicator&, const Communicator&) = default;
};

}  // namespace

Checked verify_collective_order(const Plan& plan) {
  struct Sequence {
    size_t template_index;
    std::vector<int> ops;
  };
  std::map<Communicator, std::vector<Sequence>> sequences;
  for (size_t t = 0; t < plan.templates.size(); ++t) {
    std::map<Communicator, std::vector<int>> mine;
    for (size_t i = 0; i < plan.templates[t].ops.size(); ++i) {
      const PlannedOp& op = plan.templates[t].ops[i];
      if (op.communication < 0 || op.kind == OpKind::Send || op.kind == OpKind::Recv) continue;
      const Communication& comm = plan.communications[static_cast<size_t>(op.communication)];
      mine[{op.stream, comm.over, comm.from, comm.to}].push_back(static_cast<int>(i));
    }
    for (auto& [communicator, ops] : mine) sequences[communicator].push_back({t, std::move(ops)});
  }
  for (const auto& [communicator, list] : sequences) {
    const PlanTemplate& first = plan.templates[list[0].template_index];
    for (const Sequence& other : list) {
      const PlanTemplate& of = plan.templates[other.template_index];
      for (size_t i = 0; i < std::min(list[0].ops.size(), other.ops.size()); ++i) {
        const int a = list[0].ops[i], b = other.ops[i];
        if (first.ops[static_cast<size_t>(a)].communication == of.ops[static_cast<size_t>(b)].communication) continue;
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
