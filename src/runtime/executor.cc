#include "runtime/executor.h"

#include <algorithm>

#include "base/invariant.h"

namespace piper {

const PlanBucket* Preparation::bucket(const PlanLabel& label) const {
  for (const PlanBucket& bucket : plan.buckets)
    if (bucket.name == label.name) return &bucket;
  return nullptr;
}

std::optional<int> Preparation::find(const std::vector<int>& buffers, Category category) const {
  for (const int index : buffers)
    if (buffer(index).category == category) return index;
  return std::nullopt;
}

std::vector<int> Preparation::members(const Communication& communication) const {
  const PlanPartition& over = plan.partitions[static_cast<size_t>(communication.over)];
  const auto position = std::find(over.members.begin(), over.members.end(), device) - over.members.begin();
  const auto first = over.members.begin() + position / over.part_size * over.part_size;
  return {first, first + over.part_size};
}

int64_t Preparation::samples_over(const Communication& communication) const {
  const DeviceList& members = plan.partitions[static_cast<size_t>(communication.over)].members;
  for (const PlanWork& work : plan.works)
    if (work.layout == communication.over || (work.pass && plan.groups[static_cast<size_t>(work.group)] == members))
      return work.samples;
  throw std::runtime_error("nothing is computed on the values of an exchange");
}

Circles make_circles(const Plan& plan, Communicator& communicator) {
  std::vector<OpKind> kinds(plan.communications.size(), OpKind::Send);
  for (const PlanTemplate& t : plan.templates)
    for (const PlannedOp& op : t.ops)
      if (op.communication >= 0) kinds[static_cast<size_t>(op.communication)] = op.kind;
  Circles circles;
  const auto add = [&](const std::vector<int>& members) {
    if (!circles.contains(members)) circles[members] = communicator.make_circle(members);
  };
  for (size_t c = 0; c < kinds.size(); ++c) {
    const Communication& communication = plan.communications[c];
    if (kinds[c] == OpKind::ReducePieces) {
      for (const PlanBucket& bucket : plan.buckets)
        if (bucket.name == communication.label.name)
          for (const OwnedPiece& piece : owned_pieces(plan, bucket)) add(piece.owners);
    } else if (!communication.transfer) {
      const PlanPartition& over = plan.partitions[static_cast<size_t>(communication.over)];
      for (auto first = over.members.begin(); first != over.members.end(); first += over.part_size)
        add({first, first + over.part_size});
    }
  }
  return circles;
}

std::unique_ptr<Executor> make_executor(const Preparation& prepare, int op) {
  switch (prepare.op(op).kind) {
    case OpKind::Run:
      return make_run(prepare, op);
    case OpKind::Send:
      return make_send(prepare, op);
    case OpKind::Recv:
      return make_receive(prepare, op);
    case OpKind::AllReduce:
      return make_all_reduce(prepare, op);
    case OpKind::ReduceScatter:
      return make_reduce_scatter(prepare, op);
    case OpKind::AllGather:
      return make_all_gather(prepare, op);
    case OpKind::AllToAll:
      return make_all_to_all(prepare, op);
    case OpKind::ReducePieces:
      return make_reduce_pieces(prepare, op);
    case OpKind::TakePart:
      return make_take_part(prepare, op);
    case OpKind::Update:
      return make_update(prepare, op);
  }
  internal_error("a kind of operation without executor");
}

Number number_type(DType dtype) {
  return number_type(scalar_type(dtype));
}
Number number_type(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Double:
      return Number::Float64;
    case c10::ScalarType::Float:
      return Number::Float32;
    case c10::ScalarType::BFloat16:
      return Number::BFloat16;
    default:
      throw std::runtime_error("sums are taken of float64, float32 and bfloat16 only");
  }
}

}  // namespace piper
