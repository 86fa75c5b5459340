#include "property/machine.h"

#include <fmt/format.h>

namespace piper::property {

Machine::Machine(const TrainingDag& dag, const Plan& plan) : dag_(dag), plan_(plan) {
  devices_.resize(static_cast<size_t>(dag.devices));
  for (const PlanTemplate& on : plan.templates)
    for (const int device : on.devices)
      devices_[index(device)] = {&on, OpId(0), Table<BufferId, Content>(on.buffers.size())};
}

const PlannedOp& Machine::take(int device, OpKind kind, NodeId node) {
  Device& here = devices_[index(device)];
  if (!here.on || !here.on->ops.contains(here.next)) {
    fault(fmt::format("device {} has no operation for {}", device, name_of(dag_, node)));
    throw OutOfStep{};
  }
  const OpId id = here.next;
  const PlannedOp& op = here.on->ops[id];
  ++here.next.value;
  const bool same = op.kind == kind && op.label.slice == dag_[node].tags.slice && op.label.pass == dag_[node].tags.pass;
  if (!same) {
    fault(fmt::format("{} stands where {} should", piper::describe(plan_, *here.on, id), name_of(dag_, node)));
    throw OutOfStep{};
  }
  return op;
}

void Machine::finish(int device, const PlannedOp& op) {
  for (const BufferId b : op.frees) content(device, b) = std::monostate{};
}

void Machine::fault(const std::string& what) {
  if (faults.size() < 8) faults.push_back(what);
}

BufferId Machine::named(int device, const std::vector<BufferId>& buffers, const std::string& name,
                        Category category) const {
  for (const BufferId b : buffers) {
    const PlanBuffer& candidate = buffer(device, b);
    if (candidate.category == category && plan_.names[candidate.label.name] == name) return b;
  }
  return {};
}

void Machine::check_done() {
  for (size_t d = 0; d < devices_.size(); ++d)
    if (devices_[d].on && devices_[d].on->ops.contains(devices_[d].next))
      fault(fmt::format("device {} has operations left", d));
}

}  // namespace piper::property
