#include "plan/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>

#include "base/invariant.h"
#include "base/overloaded.h"
#include "base/saturate.h"
#include "ir/device_classes.h"
#include "ir/local_size.h"
#include "model/whole_state.h"
#include "plan/add_waits.h"
#include "plan/communication_kinds.h"
#include "plan/plan_tables.h"

namespace piper {
namespace {

/// Writes the template of one class of devices.
class TemplateWriter {
 public:
  TemplateWriter(const LinearDag& linear, const PlanTables& tables, const Adjacency& predecessors, int device_class,
                 const DeviceClasses& classes)
      : linear_(linear),
        dag_(linear.dag),
        tables_(tables),
        predecessors_(predecessors),
        class_(device_class),
        classes_(classes) {
    out_.devices = classes.members(device_class);
    state_.assign(dag_.nodes.size(), {});
  }

  PlanTemplate write(const std::vector<NodeId>& nodes) {
    add_persistent();
    for (const NodeId id : nodes) add_ops(id);
    set_frees();
    add_waits(tables_.plan, out_, required_);
    return std::move(out_);
  }

 private:
  /// Where a node's operation and the buffers it wrote stand.
  struct NodeState {
    OpId op;
    BufferId buffer;  // the first of consecutive ones
  };
  /// Buffers of a bucket on this device.
  struct BucketBuffers {
    const Holder* holder = nullptr;
    BufferId weights, gradients, optimizer;
  };

  bool here(GroupId group) const {
    const auto& on = classes_.of_group(group);
    return std::find(on.begin(), on.end(), class_) != on.end();
  }
  BufferId add_buffer(PlanLabel label, Category category, int64_t bytes, bool persistent = false) {
    return out_.buffers.add({label, category, bytes, persistent});
  }
  /// The one that is added next.
  BufferId next_buffer() const { return BufferId(out_.buffers.size()); }

  void add_persistent() {
    const StepConfig& step = dag_.model->step;
    for (size_t b = 0; b < dag_.buckets.size(); ++b) {
      const Bucket& bucket = dag_.buckets[b];
      BucketBuffers buffers;
      for (const Holder& holder : bucket.holders)
        if (here(holder.group)) buffers.holder = &holder;
      if (buffers.holder) {
        const PlanLabel label{tables_.bucket_name[BucketId(b)], std::nullopt, -1};
        const int64_t whole = whole_elements(dag_, bucket, *buffers.holder),
                      shard = shard_elements(dag_, bucket, *buffers.holder);
        const int zero = buffers.holder->zero;
        const auto persistent = [&](Category category, int64_t count, int64_t size) {
          return add_buffer(label, category, saturating_multiply(count, size), true);
        };
        buffers.weights = persistent(Category::Weights, zero == 3 ? shard : whole, bytes_of(bucket.dtype));
        if (bucket.trainable) {
          buffers.gradients = persistent(Category::Gradients, zero >= 2 ? shard : whole, bytes_of(step.gradients));
          const int64_t state = state_of(bucket, zero >= 1 ? shard : whole);
          if (state > 0) buffers.optimizer = persistent(Category::Optimizer, state, 1);
        }
      }
      buckets_.push_back(buffers);
    }
  }

  /// Bytes of what the optimizer keeps: for so many elements, and for parameters as a whole.
  int64_t state_of(const Bucket& bucket, int64_t elements) const {
    const StepConfig& step = dag_.model->step;
    const Optimizer kind = optimizer_of(step, bucket.matrices);
    const int64_t whole = whole_state_bytes(dag_, bucket);
    if (whole == 0) return saturating_multiply(elements, optimizer_bytes(step, bucket.dtype, kind));
    return saturating_add(whole_state_begin(element_types(step, bucket.dtype), kind, elements), whole);
  }

  WorkId work(NodeId id) const {
    const WorkId first = tables_.work[id];
    return first.valid() ? WorkId(first.value + work_of_device(dag_, dag_[id], out_.devices.front())) : first;
  }

  OpId add_op(OpKind kind, PlanStreamId stream, const Node& node, NodeId id) {
    PlannedOp op;
    op.kind = kind;
    op.stream = stream;
    op.label = label_of(tables_, node);
    op.work = work(id);
    op.communication = tables_.communication[id];
    const DirectiveId origin = node.made_by.valid() ? node.made_by : node.placed_by;
    op.origin = is_compute(node) ? node.placed_by : origin;
    node_of_op_.push_back(id);
    required_.emplace_back();
    return out_.ops.add(std::move(op));
  }

  void add_ops(NodeId id) {
    const Node& node = dag_[id];
    std::visit(overloaded{
                   [&](const Compute&) { add_compute(id, node); },
                   [&](const Transfer& t) { add_transfer(id, node, t); },
                   [&](const Collective& c) { add_collective(id, node, c); },
                   [&](const Update& u) { add_update(id, node, u); },
               },
               node.op);
  }

  /// Whether an item that is no value lies in a buffer of its own.
  static bool travels(Item::Kind kind) {
    return kind == Item::Kind::Weights || kind == Item::Kind::Scalars || kind == Item::Kind::Directions;
  }
  /// Buffers that come along the edges into a node, and operations it must wait for without reading anything.
  void follow_edges(NodeId id, OpId op) {
    const auto [first, last] = predecessors_.of(id);
    for (const int* e = first; e != last; ++e) {
      const Edge& edge = dag_.edges[static_cast<size_t>(*e)];
      const NodeState& from = state_[edge.from];
      if (!from.op.valid()) continue;
      if (edge.item.is_value())
        read(op, BufferId(from.buffer.value + offset(dag_[edge.from], edge.item.value_id())));
      else if (travels(edge.item.kind) && from.buffer.valid())
        read(op, from.buffer);
      else
        required_[op].push_back(from.op);
    }
  }
  int offset(const Node& writer, ValueId value) const {
    if (!is_compute(writer)) return 0;
    const auto& writes = work_of(dag_, writer).writes;
    const auto found = std::find(writes.begin(), writes.end(), value);
    invariant(found != writes.end(), "an edge carries a value that its source writes");
    return static_cast<int>(found - writes.begin());
  }
  void read(OpId op, BufferId buffer) { add_once(out_.ops[op].reads, buffer); }
  void write(OpId op, BufferId buffer) { add_once(out_.ops[op].writes, buffer); }
  static void add_once(std::vector<BufferId>& list, BufferId item) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  }

  void add_compute(NodeId id, const Node& node) {
    const PassWork& work = work_of(dag_, node);
    const OpId op = add_op(OpKind::Run, tables_.send_stream[node.stream], node, id);
    follow_edges(id, op);
    if (const int64_t bytes = local_temporaries(dag_, node.tags.chunk, work, node.group); bytes > 0)
      write(op, add_buffer(out_.ops[op].label, Category::Temporaries, bytes));
    for (const ValueId value : work.reads)
      if ((*dag_.model)[value].kind == ValueKind::Input) read(op, input(value, node));
    for (const ParameterId p : work.parameters) {
      const BucketBuffers& buffers = buckets_[tables_.bucket_of[p]];
      if (buffers.holder->zero < 3) read(op, buffers.weights);
    }
    state_[id] = {op, next_buffer()};
    const std::vector<int64_t>& sizes = written_sizes(node, work);
    for (size_t i = 0; i < sizes.size(); ++i)
      write(op, add_buffer({tables_.value_name[work.writes[i]], node.tags.pass, node.tags.slice}, Category::Activations,
                           sizes[i]));
    for (const ParameterId p : work.gradients) write(op, contribution(tables_.bucket_of[p], node.tags.slice));
  }

  /// Bytes of what a computation writes: the same for all slices.
  const std::vector<int64_t>& written_sizes(const Node& node, const PassWork& work) {
    const auto [found, fresh] = sizes_.try_emplace({node.tags.chunk, *node.tags.pass, node.group});
    if (fresh)
      for (const ValueId value : work.writes) found->second.push_back(written_bytes(dag_, node, value));
    return found->second;
  }

  /// Where gradients of a slice go: the accumulator, or with ZeRO 2 and 3 a buffer that is reduced into it.
  BufferId contribution(BucketId bucket, int slice) {
    const BucketBuffers& buffers = buckets_[bucket];
    if (buffers.holder->zero < 2) return buffers.gradients;
    const auto [found, fresh] = contributions_.try_emplace({bucket, slice});
    if (fresh) {
      const int64_t bytes = saturating_multiply(whole_elements(dag_, dag_[bucket], *buffers.holder),
                                                bytes_of(dag_.model->step.gradients));
      found->second = add_buffer({tables_.bucket_name[bucket], Pass::B, slice}, Category::Communication, bytes);
    }
    return found->second;
  }

  BufferId input(ValueId value, const Node& node) {
    const auto [found, fresh] = inputs_.try_emplace({value, node.tags.slice, node.group});
    if (fresh)
      found->second = add_buffer({tables_.value_name[value], std::nullopt, node.tags.slice}, Category::Activations,
                                 written_bytes(dag_, node, value));
    return found->second;
  }

  void add_transfer(NodeId id, const Node& node, const Transfer& transfer) {
    if (here(transfer.from)) {
      const OpId op = add_op(OpKind::Send, tables_.send_stream[node.stream], node, id);
      follow_edges(id, op);
      state_[id] = {op, {}};
    }
    if (here(node.group)) {
      const OpId op = add_op(OpKind::Recv, tables_.receive_stream[node.stream], node, id);
      state_[id] = {op, next_buffer()};
      write(op, add_buffer({tables_.value_name[transfer.value], node.tags.pass, node.tags.slice}, Category::Activations,
                           written_bytes(dag_, node, transfer.value)));
    }
  }

  void add_collective(NodeId id, const Node& node, const Collective& collective) {
    const OpId op = add_op(op_of(collective.kind), tables_.send_stream[node.stream], node, id);
    follow_edges(id, op);
    state_[id] = {op, {}};
    switch (collective.item.kind) {
      case Item::Kind::Value:
        if (collective.kind == CollectiveKind::Rounds) return add_rounds(id, op, node);
        add_message(op, node);
        state_[id].buffer = next_buffer();
        write(op, add_buffer({tables_.value_name[collective.item.value_id()], node.tags.pass, node.tags.slice},
                             Category::Activations, written_bytes(dag_, node, collective.item.value_id())));
        break;
      case Item::Kind::Gradients: {
        const BucketId bucket = collective.item.bucket_id();
        if (node.tags.slice >= 0) read(op, contribution(bucket, node.tags.slice));
        write(op, buckets_[bucket].gradients);
        break;
      }
      case Item::Kind::Directions:
        read(op, buckets_[collective.item.bucket_id()].gradients);
        state_[id].buffer = next_buffer();
        write(op, add_buffer(out_.ops[op].label, Category::Communication, moved_bytes(dag_, node)));
        break;
      case Item::Kind::Weights:
        add_gather(id, op, node, collective.item.bucket_id());
        break;
      case Item::Kind::Scalars:
        read_gradients(id, op);
        read_sized_weights(op);
        state_[id].buffer = next_buffer();
        write(op, add_buffer(out_.ops[op].label, Category::Communication, scalar_bytes(dag_)));
        break;
      case Item::Kind::None:
        break;
    }
  }

  /// What an exchange of rows sends or gets before they are where their experts want them.
  void add_message(OpId op, const Node& node) {
    const Communication& communication = tables_.plan.communications[out_.ops[op].communication];
    if (out_.ops[op].kind != OpKind::AllToAll || communication.buffer == 0) return;
    const Value& value = (*dag_.model)[std::get<Collective>(node.op).item.value_id()];
    const ShardCounts shards = shard_counts(dag_, dag_.residence(node.tags.chunk, node.group));
    write(op, add_buffer(out_.ops[op].label, Category::Temporaries,
                         local_bytes(value, samples_on(dag_, node.group), shards)));
  }

  /// Their rows come back beside those of the first round.
  void add_rounds(NodeId id, OpId op, const Node& node) {
    state_[id].buffer = state_[node.made_from].buffer;
    write(op, state_[id].buffer);
    for (const PassWork* work : works_of(dag_, node)) {
      for (const ParameterId p : work->parameters) {
        const BucketBuffers& buffers = buckets_[tables_.bucket_of[p]];
        if (buffers.holder->zero < 3) read(op, buffers.weights);
      }
      for (const ParameterId p : work->gradients) write(op, contribution(tables_.bucket_of[p], node.tags.slice));
    }
    write(op, add_buffer(out_.ops[op].label, Category::Temporaries, rounds_temporaries(dag_, node)));
  }

  /// Those that come along the edges into a node.
  void read_gradients(NodeId id, OpId op) {
    const auto [first, last] = predecessors_.of(id);
    for (const int* e = first; e != last; ++e)
      if (const Item item = dag_.edges[static_cast<size_t>(*e)].item; item.kind == Item::Kind::Gradients)
        if (const BufferId gradients = buckets_[item.bucket_id()].gradients; gradients.valid()) read(op, gradients);
  }

  /// Where updates depend on how large parameters are.
  void read_sized_weights(OpId op) {
    if (dag_.model->step.optimizer != Optimizer::Adafactor) return;
    for (const BucketId b : buckets_.ids()) {
      if (!dag_[b].matrices || !buckets_[b].holder) continue;
      read(op, buckets_[b].weights);
      if (buckets_[b].optimizer.valid()) read(op, buckets_[b].optimizer);  // a master copy
    }
  }

  void add_gather(NodeId id, OpId op, const Node& node, BucketId bucket) {
    const BucketBuffers& buffers = buckets_[bucket];
    if (!node.tags.pass) {  // the new weights, in place
      write(op, buffers.weights);
      return;
    }
    read(op, buffers.weights);
    const int64_t bytes =
        saturating_multiply(whole_elements(dag_, dag_[bucket], *buffers.holder), bytes_of(dag_[bucket].dtype));
    state_[id].buffer =
        add_buffer({tables_.bucket_name[bucket], node.tags.pass, node.tags.slice}, Category::Communication, bytes);
    write(op, state_[id].buffer);
  }

  /// On one device the norm of all gradients is part of the update, so those of other buckets only have to be complete.
  void add_update(NodeId id, const Node& node, const Update& update) {
    const OpId op = add_op(OpKind::Update, tables_.send_stream[node.stream], node, id);
    follow_edges(id, op);
    const BucketBuffers& buffers = buckets_[update.bucket];
    const Bucket& bucket = dag_[update.bucket];
    if (update.phase != UpdatePhase::Matrices) read(op, buffers.gradients);
    if (bucket.matrices && update.phase != UpdatePhase::Matrices) write(op, buffers.gradients);
    if (update.phase != UpdatePhase::Directions) write(op, buffers.weights);
    if (buffers.optimizer.valid()) write(op, buffers.optimizer);
    if (bucket.matrices)
      write(op, add_buffer(out_.ops[op].label, Category::Temporaries, matrix_temporaries(dag_, bucket)));
    state_[id] = {op, {}};
  }

  /// Buffers go before the first operation that starts when all their uses have ended.
  void set_frees() {
    Table<BufferId, OpId> last(out_.buffers.size());
    Table<BufferId, double> ended(out_.buffers.size(), 0);
    for (const OpId i : out_.ops.ids()) {
      for (const auto* list : {&out_.ops[i].reads, &out_.ops[i].writes}) {
        for (const BufferId b : *list) {
          last[b] = i;
          ended[b] = std::max(ended[b], linear_.end[node_of_op_[i].index()]);
        }
      }
    }
    Table<OpId, std::vector<BufferId>> unused(out_.ops.size());  // by the last operation that uses them
    for (const BufferId b : last.ids())
      if (!out_.buffers[b].persistent && last[b].valid()) unused[last[b]].push_back(b);
    using Ending = std::pair<double, BufferId>;
    std::priority_queue<Ending, std::vector<Ending>, std::greater<>> waiting;
    for (const OpId i : out_.ops.ids()) {
      for (const double start = linear_.start[node_of_op_[i].index()]; !waiting.empty() && waiting.top().first <= start;
           waiting.pop())
        out_.ops[OpId(i.value - 1)].frees.push_back(waiting.top().second);
      for (const BufferId b : unused[i]) waiting.push({ended[b], b});
    }
    for (; !waiting.empty(); waiting.pop()) out_.ops.back().frees.push_back(waiting.top().second);
  }

  const LinearDag& linear_;
  const TrainingDag& dag_;
  const PlanTables& tables_;
  const Adjacency& predecessors_;
  int class_;
  const DeviceClasses& classes_;
  PlanTemplate out_;
  Table<NodeId, NodeState> state_;
  Table<OpId, NodeId> node_of_op_;
  Table<BucketId, BucketBuffers> buckets_;
  std::map<std::tuple<ChunkId, Pass, GroupId>, std::vector<int64_t>> sizes_;
  std::map<std::pair<BucketId, int>, BufferId> contributions_;
  std::map<std::tuple<ValueId, int, GroupId>, BufferId> inputs_;
  Table<OpId, std::vector<OpId>> required_;  // operations that one must wait for besides what its buffers say
};

}  // namespace

Plan lower(const LinearDag& linear, uint64_t costs) {
  const TrainingDag& dag = linear.dag;
  PlanTables tables = make_tables(dag, linear.order, costs);
  const DeviceClasses classes = device_classes(dag);
  const Adjacency predecessors = adjacency(dag, Direction::Predecessors);
  std::vector<std::vector<NodeId>> nodes(classes.count());
  for (const NodeId id : linear.order) {
    for (const int c : classes.of_group(dag[id].group)) nodes[static_cast<size_t>(c)].push_back(id);
    if (const auto* transfer = std::get_if<Transfer>(&dag[id].op))
      for (const int c : classes.of_group(transfer->from))
        if (nodes[static_cast<size_t>(c)].empty() || nodes[static_cast<size_t>(c)].back() != id)
          nodes[static_cast<size_t>(c)].push_back(id);
  }
  Table<TemplateId, PlanTemplate> templates;
  for (size_t c = 0; c < classes.count(); ++c)
    templates.push_back(TemplateWriter(linear, tables, predecessors, static_cast<int>(c), classes).write(nodes[c]));
  tables.plan.templates = std::move(templates);
  return std::move(tables.plan);
}

}  // namespace piper
