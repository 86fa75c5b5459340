#include "property/symbolic_step.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/overloaded.h"
#include "ir/local_size.h"
#include "property/bucket_operations.h"
#include "property/machine.h"
#include "property/step_rules.h"

namespace piper::property {
namespace {

class Step {
 public:
  Step(const LinearDag& linear, const Plan& plan)
      : linear_(linear), dag_(linear.dag), machine_(dag_, plan), rules_(dag_), buckets_(dag_, machine_, rules_) {}

  std::vector<std::string> run() {
    check_computations();
    try {
      for (const NodeId id : linear_.order) run(id);
      machine_.check_done();
      buckets_.check_end();
    } catch (const OutOfStep&) {
    }
    return machine_.faults;
  }

 private:
  /// Every chunk and slice has its forward once, and its backward once, whole or in its two parts.
  void check_computations() {
    std::map<std::tuple<ChunkId, int, Pass>, int> seen;
    for (const NodeId id : linear_.order)
      if (const Node& node = dag_[id]; is_compute(node)) ++seen[{node.tags.chunk, node.tags.slice, *node.tags.pass}];
    for (size_t c = 0; c < dag_.model->chunks.size(); ++c)
      for (int slice = 0; slice < dag_.slices(); ++slice) {
        const auto times = [&](Pass pass) { return seen[{ChunkId(c), slice, pass}]; };
        const Chunk& chunk = dag_.model->chunks[c];
        const auto parts = backward_parts(chunk);
        const bool whole = times(Pass::B) == 1 && times(Pass::BI) == 0 && times(Pass::BW) == 0;
        const bool halves = parts && times(Pass::B) == 0 && times(Pass::BI) == (parts->input ? 1 : 0) &&
                            times(Pass::BW) == (parts->weight ? 1 : 0);
        const bool backward = chunk.find(Pass::B) ? whole || halves : times(Pass::B) == 0;
        if (times(Pass::F) != 1 || !backward)
          machine_.fault(fmt::format("chunk {} slice {} does not run once", chunk.name, slice));
      }
  }

  void run(NodeId id) {
    const Node& node = dag_[id];
    std::visit(overloaded{
                   [&](const Compute&) { compute(id, node); },
                   [&](const Transfer& transfer) { move(id, node, transfer); },
                   [&](const Collective& collective) {
                     if (collective.item.is_value())
                       exchange(id, collective);
                     else if (collective.item.kind == Item::Kind::Scalars)
                       buckets_.scalars(id);
                     else
                       buckets_.communicate(id, collective);
                   },
                   [&](const Update& update) { buckets_.update(id, update.bucket); },
               },
               node.op);
  }

  void compute(NodeId id, const Node& node) {
    const PassWork& work = work_of(dag_, node);
    for (const int device : dag_.groups[node.group].devices) {
      const PlannedOp& op = machine_.take(device, OpKind::Run, id);
      check_inputs(id, device, op, work);
      for (const ParameterId p : work.parameters) buckets_.check_weights(id, device, op, p);
      for (const ValueId value : work.writes) {
        const BufferId buffer = machine_.named(device, op.writes, (*dag_.model)[value].name, Category::Activations);
        if (!buffer.valid())
          machine_.fault(fmt::format("{} does not write {}", name_of(dag_, id), (*dag_.model)[value].name));
        else
          machine_.content(device, buffer) = rules_.tensor(node, device, value);
      }
      for (const ParameterId p : work.gradients) buckets_.contribute(id, device, op, p);
      machine_.finish(device, op);
    }
  }

  /// Exactly the values it needs, for exactly its samples and experts.
  void check_inputs(NodeId id, int device, const PlannedOp& op, const PassWork& work) {
    std::vector<Tensor> wanted;
    for (const ValueId value : work.reads) {
      const std::string& name = (*dag_.model)[value].name;
      if ((*dag_.model)[value].kind != ValueKind::Input)
        wanted.push_back(rules_.tensor(dag_[id], device, value));
      else if (!machine_.named(device, op.reads, name, Category::Activations).valid())
        machine_.fault(fmt::format("{} on device {} does not read the input {}", name_of(dag_, id), device, name));
    }
    for (const Tensor* found : machine_.find<Tensor>(device, op.reads)) {
      const auto match = std::find(wanted.begin(), wanted.end(), *found);
      if (match == wanted.end())
        machine_.fault(fmt::format("{} on device {} reads {}, which is not for it", name_of(dag_, id), device,
                                   describe(dag_, *found)));
      else
        wanted.erase(match);
    }
    for (const Tensor& missing : wanted)
      machine_.fault(fmt::format("{} on device {} misses {}", name_of(dag_, id), device, describe(dag_, missing)));
  }

  /// The one tensor that a message carries away.
  Tensor sent(NodeId id, int device, const PlannedOp& op, ValueId value) {
    const std::vector<Tensor*> found = machine_.find<Tensor>(device, op.reads);
    if (found.size() == 1 && found[0]->value == value) return *found[0];
    machine_.fault(fmt::format("{} on device {} has nothing to send, or something else", name_of(dag_, id), device));
    return {value, 0, 0, {}};
  }
  void deliver(int device, const PlannedOp& op, Tensor tensor) {
    if (op.writes.empty()) return machine_.fault("a message is delivered nowhere");
    machine_.content(device, op.writes[0]) = std::move(tensor);
    machine_.finish(device, op);
  }

  void move(NodeId id, const Node& node, const Transfer& transfer) {
    const DeviceList &from = dag_.groups[transfer.from].devices, &to = dag_.groups[node.group].devices;
    std::map<int, Tensor> messages;
    for (const int device : from) {
      const PlannedOp& op = machine_.take(device, OpKind::Send, id);
      messages[device] = sent(id, device, op, transfer.value);
      machine_.finish(device, op);
    }
    for (size_t i = 0; i < to.size(); ++i) {
      const PlannedOp& op = machine_.take(to[i], OpKind::Recv, id);
      deliver(to[i], op,
              from.size() == to.size() ? messages[from[i]] : joined(id, static_cast<int>(i), from, to, messages));
    }
  }

  /// Pieces of what the senders have, as many samples of each as the plan's arithmetic says.
  Tensor joined(NodeId id, int position, const DeviceList& from, const DeviceList& to,
                std::map<int, Tensor>& messages) {
    const int64_t samples = dag_.model->step.batch / dag_.slices();
    const int64_t theirs = samples / static_cast<int64_t>(from.size());
    int64_t at = position * (samples / static_cast<int64_t>(to.size()));
    Tensor out{std::get<Transfer>(dag_[id].op).value, 0, 0, {}};
    for (const TransferPiece& piece : transfer_pieces(position, to, from, samples, 1)) {
      const Tensor& message = messages[piece.peer];
      if (message.slots.size() != 1 || message.experts > 0) {
        machine_.fault(fmt::format("{} cannot cut {}", name_of(dag_, id), describe(dag_, message)));
        return out;
      }
      const Samples part{message.slots[0].first + at % theirs, piece.samples};
      at += piece.samples;
      if (!out.slots.empty() && out.slots.back().first + out.slots.back().count == part.first)
        out.slots.back().count += part.count;
      else
        out.slots.push_back(part);
    }
    return out;
  }

  void exchange(NodeId id, const Collective& collective) {
    const Partition& over = dag_.groups[collective.over];
    for (int part = 0; part < over.parts(); ++part) {
      const DeviceList members(over.members.begin() + part * over.part_size,
                               over.members.begin() + (part + 1) * over.part_size);
      std::vector<const PlannedOp*> ops;
      std::vector<Tensor> before;
      for (const int device : members) {
        ops.push_back(&machine_.take(device, OpKind::AllToAll, id));
        before.push_back(sent(id, device, *ops.back(), collective.item.value_id()));
      }
      const Dim* expert = labelled((*dag_.model)[collective.item.value_id()].shape, expert_label);
      const bool enters = expert && before[0].experts == expert->size;
      for (size_t j = 0; j < members.size(); ++j)
        deliver(members[j], *ops[j], enters ? dispatched(before, j) : combined(id, before, j));
    }
  }

  /// Some experts of everyone's slots.
  static Tensor dispatched(const std::vector<Tensor>& before, size_t j) {
    const int64_t experts = before[0].experts / static_cast<int64_t>(before.size());
    Tensor out{before[0].value, static_cast<int64_t>(j) * experts, experts, {}};
    for (const Tensor& tensor : before) out.slots.insert(out.slots.end(), tensor.slots.begin(), tensor.slots.end());
    return out;
  }
  /// All experts of one's own slots.
  Tensor combined(NodeId id, const std::vector<Tensor>& before, size_t j) {
    Tensor out{before[0].value, 0, 0, {}};
    for (const Tensor& tensor : before) {
      const bool fits = tensor.slots.size() == before.size() && tensor.first_expert == out.experts &&
                        (out.slots.empty() || out.slots[0] == tensor.slots[j]);
      if (!fits) {
        machine_.fault(fmt::format("{} cannot put {} together", name_of(dag_, id), describe(dag_, tensor)));
        break;
      }
      out.slots = {tensor.slots[j]};
      out.experts += tensor.experts;
    }
    return out;
  }

  const LinearDag& linear_;
  const TrainingDag& dag_;
  Machine machine_;
  StepRules rules_;
  BucketOperations buckets_;
};

}  // namespace

std::vector<std::string> run_symbolically(const LinearDag& linear, const Plan& plan) {
  return Step(linear, plan).run();
}

}  // namespace piper::property
