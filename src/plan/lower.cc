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
    int op = -1;
    int buffer = -1;  // the first of consecutive ones
  };
  /// Buffers of a bucket on this device.
  struct BucketBuffers {
    const Holder* holder = nullptr;
    int weights = -1, gradients = -1, optimizer = -1;
  };

  bool here(GroupId group) const {
    const auto& on = classes_.of_group(group);
    return std::find(on.begin(), on.end(), class_) != on.end();
  }
  int add_buffer(PlanLabel label, Category category, int64_t bytes, bool persistent = false) {
    out_.buffers.push_back({label, category, bytes, persistent});
    return static_cast<int>(out_.buffers.size()) - 1;
  }

  void add_persistent() {
    const StepConfig& step = dag_.model->step;
    for (size_t b = 0; b < dag_.buckets.size(); ++b) {
      const Bucket& bucket = dag_.buckets[b];
      BucketBuffers buffers;
      for (const Holder& holder : bucket.holders)
        if (here(holder.group)) buffers.holder = &holder;
      if (buffers.holder) {
        const PlanLabel label{tables_.bucket_name[b], std::nullopt, -1};
        const int64_t whole = whole_elements(dag_, bucket, *buffers.holder),
                      shard = shard_elements(dag_, bucket, *buffers.holder);
        const int zero = buffers.holder->zero;
        const auto persistent = [&](Category category, int64_t count, int64_t size) {
          return add_buffer(label, category, saturating_multiply(count, size), true);
        };
        buffers.weights = persistent(Category::Weights, zero == 3 ? shard : whole, bytes_of(bucket.dtype));
        if (bucket.trainable) {
          buffers.gradients = persistent(Category::Gradients, zero >= 2 ? shard : whole, bytes_of(step.gradients));
          const int64_t state = optimizer_bytes(step, bucket.dtype);
          if (state > 0) buffers.optimizer = persistent(Category::Optimizer, zero >= 1 ? shard : whole, state);
        }
      }
      buckets_.push_back(buffers);
    }
  }

  int add_op(OpKind kind, int stream, const Node& node, NodeId id) {
    PlannedOp op;
    op.kind = kind;
    op.stream = stream;
    op.label = label_of(tables_, node);
    op.work = tables_.work[id.index()];
    op.communication = tables_.communication[id.index()];
    const DirectiveId origin = node.made_by.valid() ? node.made_by : node.placed_by;
    op.origin = is_compute(node) ? node.placed_by.value : origin.value;
    out_.ops.push_back(std::move(op));
    node_of_op_.push_back(id);
    required_.emplace_back();
    return static_cast<int>(out_.ops.size()) - 1;
  }

  void add_ops(NodeId id) {
    const Node& node = dag_[id];
    std::visit(overloaded{
                   [&](const Compute&) { add_compute(id, node); },
                   [&](const Transfer& t) { add_transfer(id, node, t); },
                   [&](const Collective& c) { add_collective(id, node, c); },
                   [&](const Update& u) { add_update(id, node, u.bucket); },
               },
               node.op);
  }

  /// Buffers that come along the edges into a node, and operations it must wait for without reading anything.
  void follow_edges(NodeId id, int op) {
    const auto [first, last] = predecessors_.of(id);
    for (const int* e = first; e != last; ++e) {
      const Edge& edge = dag_.edges[static_cast<size_t>(*e)];
      const NodeState& from = state_[edge.from.index()];
      if (from.op < 0) continue;
      if (edge.item.is_value())
        read(op, from.buffer + offset(dag_[edge.from], edge.item.value_id()));
      else if ((edge.item.kind == Item::Kind::Weights || edge.item.kind == Item::Kind::Scalars) && from.buffer >= 0)
        read(op, from.buffer);
      else
        required_[static_cast<size_t>(op)].push_back(from.op);
    }
  }
  int offset(const Node& writer, ValueId value) const {
    if (!is_compute(writer)) return 0;
    const auto& writes = work_of(dag_, writer).writes;
    const auto found = std::find(writes.begin(), writes.end(), value);
    invariant(found != writes.end(), "an edge carries a value that its source writes");
    return static_cast<int>(found - writes.begin());
  }
  void read(int op, int buffer) { add_once(out_.ops[static_cast<size_t>(op)].reads, buffer); }
  void write(int op, int buffer) { add_once(out_.ops[static_cast<size_t>(op)].writes, buffer); }
  static void add_once(std::vector<int>& list, int item) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  }

  void add_compute(NodeId id, const Node& node) {
    const PassWork& work = work_of(dag_, node);
    const int op = add_op(OpKind::Run, tables_.send_stream[node.stream.index()], node, id);
    follow_edges(id, op);
    const Amount& temporaries = work.temporaries_on(shard_counts(dag_, dag_.residence(node.tags.chunk, node.group)));
    if (const int64_t bytes = temporaries.at(samples_on(dag_, node.group)); bytes > 0)
      write(op, add_buffer(out_.ops[static_cast<size_t>(op)].label, Category::Temporaries, bytes));
    for (const ValueId value : work.reads)
      if ((*dag_.model)[value].kind == ValueKind::Input) read(op, input(value, node));
    for (const ParameterId p : work.parameters) {
      const BucketBuffers& buffers = buckets_[bucket_of(p)];
      if (buffers.holder->zero < 3) read(op, buffers.weights);
    }
    state_[id.index()] = {op, static_cast<int>(out_.buffers.size())};
    for (const ValueId value : work.writes)
      write(op, add_buffer({tables_.value_name[value.index()], node.tags.pass, node.tags.slice}, Category::Activations,
                           written_bytes(dag_, node, value)));
    for (const ParameterId p : work.gradients) write(op, contribution(bucket_of(p), node.tags.slice));
  }

  size_t bucket_of(ParameterId parameter) {
    if (bucket_of_.empty()) {
      bucket_of_.assign(dag_.model->parameters.size(), -1);
      for (size_t b = 0; b < dag_.buckets.size(); ++b)
        for (const ParameterId p : dag_.buckets[b].parameters) bucket_of_[p.index()] = static_cast<int>(b);
    }
    return static_cast<size_t>(bucket_of_[parameter.index()]);
  }

  /// Where gradients of a slice go: the accumulator, or with ZeRO 2 and 3 a buffer that is reduced into it.
  int contribution(size_t bucket, int slice) {
    const BucketBuffers& buffers = buckets_[bucket];
    if (buffers.holder->zero < 2) return buffers.gradients;
    const auto [found, fresh] = contributions_.try_emplace({bucket, slice}, -1);
    if (fresh) {
      const int64_t bytes = saturating_multiply(whole_elements(dag_, dag_.buckets[bucket], *buffers.holder),
                                                bytes_of(dag_.model->step.gradients));
      found->second = add_buffer({tables_.bucket_name[bucket], Pass::B, slice}, Category::Communication, bytes);
    }
    return found->second;
  }

  int input(ValueId value, const Node& node) {
    const auto [found, fresh] = inputs_.try_emplace({value.value, node.tags.slice, node.group.value}, -1);
    if (fresh)
      found->second = add_buffer({tables_.value_name[value.index()], std::nullopt, node.tags.slice},
                                 Category::Activations, written_bytes(dag_, node, value));
    return found->second;
  }

  void add_transfer(NodeId id, const Node& node, const Transfer& transfer) {
    if (here(transfer.from)) {
      const int op = add_op(OpKind::Send, tables_.send_stream[node.stream.index()], node, id);
      follow_edges(id, op);
      state_[id.index()] = {op, -1};
    }
    if (here(node.group)) {
      const int op = add_op(OpKind::Recv, tables_.receive_stream[node.stream.index()], node, id);
      state_[id.index()] = {op, static_cast<int>(out_.buffers.size())};
      write(op, add_buffer({tables_.value_name[transfer.value.index()], node.tags.pass, node.tags.slice},
                           Category::Activations, written_bytes(dag_, node, transfer.value)));
    }
  }

  void add_collective(NodeId id, const Node& node, const Collective& collective) {
    const int op = add_op(op_of(collective.kind), tables_.send_stream[node.stream.index()], node, id);
    follow_edges(id, op);
    state_[id.index()] = {op, -1};
    switch (collective.item.kind) {
      case Item::Kind::Value:
        state_[id.index()].buffer = static_cast<int>(out_.buffers.size());
        write(op, add_buffer({tables_.value_name[collective.item.value_id().index()], node.tags.pass, node.tags.slice},
                             Category::Activations, written_bytes(dag_, node, collective.item.value_id())));
        break;
      case Item::Kind::Gradients: {
        const size_t bucket = collective.item.bucket_id().index();
        if (node.tags.slice >= 0) read(op, contribution(bucket, node.tags.slice));
        write(op, buckets_[bucket].gradients);
        break;
      }
      case Item::Kind::Weights:
        add_gather(id, op, node, collective.item.bucket_id());
        break;
      case Item::Kind::Scalars:
        for (const BucketBuffers& buffers : buckets_)
          if (buffers.gradients >= 0) read(op, buffers.gradients);
        state_[id.index()].buffer = static_cast<int>(out_.buffers.size());
        write(op, add_buffer(out_.ops[static_cast<size_t>(op)].label, Category::Communication, scalar_bytes));
        break;
      case Item::Kind::None:
        break;
    }
  }

  void add_gather(NodeId id, int op, const Node& node, BucketId bucket) {
    const BucketBuffers& buffers = buckets_[bucket.index()];
    if (!node.tags.pass) {  // the new weights, in place
      write(op, buffers.weights);
      return;
    }
    read(op, buffers.weights);
    const int64_t bytes =
        saturating_multiply(whole_elements(dag_, dag_[bucket], *buffers.holder), bytes_of(dag_[bucket].dtype));
    state_[id.index()].buffer = add_buffer({tables_.bucket_name[bucket.index()], node.tags.pass, node.tags.slice},
                                           Category::Communication, bytes);
    write(op, state_[id.index()].buffer);
  }

  /// On one device the norm of all gradients is part of the update, so those of other buckets only have to be complete.
  void add_update(NodeId id, const Node& node, BucketId bucket) {
    const int op = add_op(OpKind::Update, tables_.send_stream[node.stream.index()], node, id);
    follow_edges(id, op);
    const BucketBuffers& buffers = buckets_[bucket.index()];
    read(op, buffers.gradients);
    write(op, buffers.weights);
    if (buffers.optimizer >= 0) write(op, buffers.optimizer);
    state_[id.index()] = {op, -1};
  }

  /// Buffers go before the first operation that starts when all their uses have ended.
  void set_frees() {
    std::vector<int> last(out_.buffers.size(), -1);
    std::vector<double> ended(out_.buffers.size(), 0);
    for (size_t i = 0; i < out_.ops.size(); ++i) {
      for (const auto* list : {&out_.ops[i].reads, &out_.ops[i].writes}) {
        for (const int b : *list) {
          last[static_cast<size_t>(b)] = static_cast<int>(i);
          ended[static_cast<size_t>(b)] = std::max(ended[static_cast<size_t>(b)], linear_.end[node_of_op_[i].index()]);
        }
      }
    }
    std::vector<std::vector<int>> unused(out_.ops.size());  // by the last operation that uses them
    for (size_t b = 0; b < last.size(); ++b)
      if (!out_.buffers[b].persistent && last[b] >= 0)
        unused[static_cast<size_t>(last[b])].push_back(static_cast<int>(b));
    using Ending = std::pair<double, int>;
    std::priority_queue<Ending, std::vector<Ending>, std::greater<>> waiting;
    for (size_t i = 0; i < out_.ops.size(); ++i) {
      for (const double start = linear_.start[node_of_op_[i].index()]; !waiting.empty() && waiting.top().first <= start;
           waiting.pop())
        out_.ops[i - 1].frees.push_back(waiting.top().second);
      for (const int b : unused[i]) waiting.push({ended[static_cast<size_t>(b)], b});
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
  std::vector<NodeState> state_;
  std::vector<NodeId> node_of_op_;
  std::vector<BucketBuffers> buckets_;
  std::vector<int> bucket_of_;
  std::map<std::pair<size_t, int>, int> contributions_;
  std::map<std::tuple<int, int, int>, int> inputs_;
  std::vector<std::vector<int>> required_;  // by op: operations it must wait for besides what its buffers say
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
  std::vector<PlanTemplate> templates;
  for (size_t c = 0; c < classes.count(); ++c)
    templates.push_back(TemplateWriter(linear, tables, predecessors, static_cast<int>(c), classes).write(nodes[c]));
  tables.plan.templates = std::move(templates);
  return std::move(tables.plan);
}

}  // namespace piper
