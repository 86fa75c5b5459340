#include "property/machine.h"

#include <fmt/format.h>

namespace piper::property {

Machine::Machine(const TrainingDag& dag, const Plan& plan) : dag_(dag), plan_(plan) {
  devices_.resize(static_cast<size_t>(dag.devices));
  for (const PlanTemplate& on : plan.templates)
    for (const int device : on.devices) devices_[index(device)] = {&on, 0, std::vector<Content>(on.buffers.size())};
}

const PlannedOp& Machine::take(int device, OpKind kind, NodeId node) {
  Device& here = devices_[index(device)];
  if (!here.on || here.next == here.on->ops.size()) {
    fault(fmt::format("device {} has no operation for {}", device, name_of(dag_, node)));
    throw OutOfStep{};
  }
  const PlannedOp& op = here.on->ops[here.next++];
  const bool same = op.kind == kind && op.label.slice == dag_[node].tags.slice && op.label.pass == dag_[node].tags.pass;
  if (!same) {
    fault(fmt::format("{} stands where {} should", piper::describe(plan_, *here.on, static_cast<int>(here.next) - 1),
                      name_of(dag_, node)));
    throw OutOfStep{};
  }
  return op;
}

void Machine::finish(int device, const PlannedOp& op) {
  for (const int b : op.frees) content(device, b) = std::monostate{};
}

void Machine::fault(const std::string& what) {
  if (faults.size() < 8) faults.push_back(what);
}

int Machine::named(int device, const std::vector<int>& buffers, const std::string& name, Category category) const {
  for (const int b : buffers) {
    const PlanBuffer& candidate = buffer(device, b);
    if (candidate.category == category && plan_.names[static_cast<size_t>(candidate.label.name)] == name) return b;
  }
  return -1;
}

void Machine::check_done() {
  for (size_t d = 0; d < devices_.size(); ++d)
    if (devices_[d].on && devices_[d].next != devices_[d].on->ops.size())
      fault(fmt::format("device {} has operations left", d));
}

}  // namespace piper::property
