#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "runtime/operations.h"
#include "runtime/stream/failure.h"

namespace piper {

const PlanBucket* Preparation::bucket(const PlanLabel& label) const {
  const auto found = index.buckets.find(label.name);
  return found == index.buckets.end() ? nullptr : found->second.bucket;
}

std::optional<BufferId> Preparation::find(const std::vector<BufferId>& buffers, Category category) const {
  for (const BufferId index : buffers)
    if (buffer(index).category == category) return index;
  return std::nullopt;
}

std::vector<int> Preparation::members_of(PartitionId partition) const {
  const PlanPartition& over = plan.partitions[partition];
  const auto position = std::find(over.members.begin(), over.members.end(), device) - over.members.begin();
  const auto first = over.members.begin() + position / over.part_size * over.part_size;
  return {first, first + over.part_size};
}

int64_t Preparation::samples_over(const Communication& communication) const {
  const DeviceList& members = plan.partitions[communication.over].members;
  for (const PlanWork& work : plan.works)
    if (std::ranges::find(work.shards.of, communication.over) != work.shards.of.end() ||
        (work.pass && plan.groups[work.group] == members))
      return work.samples;
  throw std::runtime_error("nothing is computed on the values of an exchange");
}

namespace {

template <class Add>
void make_groups_of(const Plan& plan, const Communication& communication, const PlannedOp& op,
                    Communicator& communicator, const Add& add) {
  if (op.kind == OpKind::ReducePieces) {
    for (const PlanBucket& bucket : plan.buckets)
      if (bucket.name == communication.label.name)
        for (const OwnedPiece& piece : owned_pieces(plan, bucket)) add(op.stream, piece.owners);
  } else if (communication.transfer) {
    const DeviceList& from = plan.groups[communication.from];
    const DeviceList& to = plan.groups[communication.to];
    for (size_t i = 0; i < from.size(); ++i)
      for (const TransferPiece& piece : transfer_pieces(
               static_cast<int>(i), from, to, static_cast<int64_t>(from.size() * to.size()), plan.devices_per_sample()))
        communicator.connect(from[i], piece.peer);
  } else {
    const PlanPartition& over = plan.partitions[communication.over];
    for (auto first = over.members.begin(); first != over.members.end(); first += over.part_size)
      add(op.stream, {first, first + over.part_size});
  }
}

}  // namespace

ProcessGroups make_process_groups(const Plan& plan, Communicator& communicator) {
  const int device = communicator.device();
  const PlanTemplate& program = program_of(plan, device);
  Table<CommunicationId, const PlannedOp*> ops(plan.communications.size());  // one of each, of any device
  for (const PlanTemplate& t : plan.templates)
    for (const PlannedOp& op : t.ops)
      if (op.communication.valid()) ops[op.communication] = &op;
  ProcessGroups groups;
  const auto add = [&](PlanStreamId stream, const std::vector<int>& members) {
    if (!groups.contains({stream, members})) groups[{stream, members}] = communicator.make_group(members);
  };
  for (const CommunicationId c : ops.ids()) {
    try {
      if (ops[c]) make_groups_of(plan, plan.communications[c], *ops[c], communicator, add);
    } catch (const CommunicationError& problem) {
      const auto mine = std::find_if(program.ops.begin(), program.ops.end(),
                                     [&](const PlannedOp& op) { return op.communication == c; });
      throw RunError(
          dynamic_cast<const JobStopped*>(&problem) ? RunProblem::Elsewhere : RunProblem::Operation,
          fmt::format("{}: {}", describe_op(plan, device, OpId(static_cast<size_t>(mine - program.ops.begin()))),
                      problem.what()));
    }
  }
  return groups;
}

std::unique_ptr<Executor> make_executor(const Preparation& prepare, OpId op) {
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
    case OpKind::LocalSlice:
      return make_local_slice(prepare, op);
    case OpKind::Rounds:
      return make_rounds(prepare, op);
    case OpKind::Update:
      return make_update(prepare, op);
    case OpKind::Shift:
      return make_shift(prepare, op);
  }
  internal_error("a kind of operation without executor");
}

DataType data_type(DType dtype) {
  return data_type(scalar_type(dtype));
}
DataType data_type(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Double:
      return DataType::Float64;
    case c10::ScalarType::Float:
      return DataType::Float32;
    case c10::ScalarType::BFloat16:
      return DataType::BFloat16;
    default:
      throw std::runtime_error("sums are taken of float64, float32 and bfloat16 only");
  }
}

}  // namespace piper
