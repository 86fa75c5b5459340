// All devices of a plan, their buffers, and how far each has come.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "property/symbols.h"

namespace piper::property {

/// The plan does not do what the DAG says next; nothing after it can be judged.
struct OutOfStep {};

class Machine {
 public:
  Machine(const TrainingDag& dag, const Plan& plan);

  /// The next operation of the device, which must be this one.
  const PlannedOp& take(int device, OpKind kind, NodeId node);
  /// What the operation frees goes.
  void finish(int device, const PlannedOp& op);
  /// Notes a fault; only the first ones are kept.
  void fault(const std::string& what);

  bool has(int device) const { return device < static_cast<int>(devices_.size()) && devices_[index(device)].on; }
  Content& content(int device, BufferId buffer) { return devices_[index(device)].buffers[buffer]; }
  const PlanBuffer& buffer(int device, BufferId id) const { return devices_[index(device)].on->buffers[id]; }
  const Table<BufferId, PlanBuffer>& buffers(int device) const { return devices_[index(device)].on->buffers; }
  int device_count() const { return static_cast<int>(devices_.size()); }

  /// The contents of this type among the buffers.
  template <class Kind>
  std::vector<Kind*> find(int device, const std::vector<BufferId>& buffers) {
    std::vector<Kind*> out;
    for (const BufferId b : buffers)
      if (auto* kind = std::get_if<Kind>(&content(device, b))) out.push_back(kind);
    return out;
  }
  /// The first of the buffers with this name and category, if there is one.
  BufferId named(int device, const std::vector<BufferId>& buffers, const std::string& name, Category category) const;

  /// All operations have run.
  void check_done();
  std::vector<std::string> faults;

 private:
  struct Device {
    const PlanTemplate* on = nullptr;
    OpId next{0};
    Table<BufferId, Content> buffers;
  };
  static size_t index(int device) { return static_cast<size_t>(device); }

  const TrainingDag& dag_;
  const Plan& plan_;
  std::vector<Device> devices_;
};

}  // namespace piper::property
