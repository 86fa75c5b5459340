#include "train/loop/diff/dependence_order.h"

#include <algorithm>
#include <map>
#include <set>

namespace piper {
namespace {

/// Every device goes on until it has to wait for another: queues are restrictions of one order, so somebody always can.
class Merging {
 public:
  explicit Merging(const Plan& plan) : plan_(plan) {
    for (const PlanTemplate& program : plan.templates)
      for (const int device : program.devices) {
        programs_[device] = &program;
        for (const PlannedOp& op : program.ops)
          if (op.communication.valid()) members_[{op.communication, op.kind == OpKind::Recv}].insert(device);
      }
  }

  std::vector<OpOnDevice> merge() {
    while (go_on(false) || go_on(true)) {
    }
    return std::move(order_);
  }

 private:
  /// `anyway`: one operation, whatever it waits for: plans that were not proved may have such.
  bool go_on(bool anyway) {
    const size_t before = order_.size();
    for (const auto& [device, program] : programs_) {
      OpId& next = next_.try_emplace(device, 0).first->second;
      for (; program->ops.contains(next); ++next.value) {
        const PlannedOp& op = program->ops[next];
        if (op.communication.valid()) reached_.insert({op.communication, device});
        if (!anyway && !ready(device, op)) break;
        order_.push_back({device, next});
        if (!anyway) continue;
        ++next.value;
        return true;
      }
    }
    return order_.size() > before;
  }

  bool ready(int device, const PlannedOp& op) const {
    if (!op.communication.valid() || op.kind == OpKind::Send) return true;
    const auto have_reached = [&](const auto& devices) {
      return std::all_of(devices.begin(), devices.end(), [&](int member) {
        return reached_.contains({op.communication, member});
      });
    };
    if (op.kind == OpKind::Recv) {
      const auto senders = members_.find({op.communication, false});
      return senders == members_.end() || have_reached(senders->second);
    }
    const PartitionId over = plan_.communications[op.communication].over;
    if (!over.valid() || op.kind == OpKind::ReducePieces) return have_reached(members_.at({op.communication, false}));
    return have_reached(part_with(plan_, over, device));
  }

  const Plan& plan_;
  std::map<int, const PlanTemplate*> programs_;
  std::map<std::pair<CommunicationId, bool>, std::set<int>> members_;  // of a communication, or its receivers
  std::map<int, OpId> next_;                                           // by device
  std::set<std::pair<CommunicationId, int>> reached_;                  // by these devices
  std::vector<OpOnDevice> order_;
};

}  // namespace

std::vector<int> part_with(const Plan& plan, PartitionId partition, int device) {
  const PlanPartition& of = plan.partitions[partition];
  const auto at = std::find(of.members.begin(), of.members.end(), device) - of.members.begin();
  const auto first = of.members.begin() + at / of.part_size * of.part_size;
  return {first, first + of.part_size};
}

std::vector<OpOnDevice> dependence_order(const Plan& plan) {
  return Merging(plan).merge();
}

}  // namespace piper
