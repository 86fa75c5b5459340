// insert_communication: where a value is written in one placement and read in another, the collectives that lead from
// one to the other; one transfer per value and receiving group. All readers behind a border share them. In a ring a
// value goes from step to step, anew in every pass.
//   before:  %b = compute layer.1 F @ [1] <- %a:x1                      (%a on [0])
//   after:   %t = transfer x1 [0] -> [1] <- %a:x1     %b = compute layer.1 F @ [1] <- %t:x1
// Illegal: values that cannot be exchanged (E308), are sharded in one place only (E317), or cannot be cut anew (E311).
#include <fmt/format.h>

#include <map>
#include <set>
#include <unordered_map>

#include "ir/local_size.h"
#include "ir/placement.h"
#include "passes/passes.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

class Inserter {
 public:
  explicit Inserter(TrainingDag& dag) : dag_(dag) {}

  Checked run() {
    keep_counts();
    const size_t edges = dag_.edges.size();
    for (size_t e = 0; e < edges; ++e) {
      const Edge edge = dag_.edges[e];
      if (!edge.item.is_value()) continue;
      PIPER_TRY(const NodeId source, deliver(edge));
      dag_.edges[e].from = source;
    }
    return check_inputs();
  }

 private:
  const Residence& residence_of(const Node& node) const { return dag_.residence(node.tags.chunk, node.group); }

  /// How many rows every expert has is told once: all passes of a slice use what forward was told, also where the
  /// router is computed again.
  void keep_counts() {
    const ComputeIndex computations(dag_);
    std::map<NodeId, NodeId> told;  // by computation: the node that has counted
    const auto is_told = [&](const Edge& edge) {
      const Node& reader = dag_[edge.to];
      return edge.item.is_value() && (*dag_.model)[reader.tags.chunk].routed_by == edge.item.value_id() &&
             residence_of(reader).expert_group();
    };
    for (const Edge& edge : dag_.edges)
      if (is_told(edge)) told[edge.to] = edge.from;
    for (Edge& edge : dag_.edges) {
      if (!is_told(edge)) continue;
      const NodeTags& tags = dag_[edge.to].tags;
      edge.from = told.at(computations.find(tags.chunk, Pass::F, tags.slice));
      ends_.emplace(edge.to, edge);
    }
  }

  /// On one group nothing moves unless somebody divides values.
  bool is_there(const Node& producer, const Node& reader) const {
    return producer.group == reader.group && dag_.devices_per_sample() == 1 &&
           residence_of(producer).expert_group() == residence_of(reader).expert_group();
  }

  /// The node that has the value where and how the reader wants it. Sums are completed where their terms were made;
  /// between groups a value goes outside of experts, and sharded rather than whole.
  Result<NodeId> deliver(const Edge& edge) {
    if (is_there(dag_[edge.from], dag_[edge.to])) return edge.from;
    const Node producer = dag_[edge.from], reader = dag_[edge.to];  // copies: adding nodes moves them
    const ValueId value = edge.item.value_id();
    NodeId source = edge.from;
    const bool halves = producer.group == reader.group && producer.tags.chunk == reader.tags.chunk &&
                        producer.tags.pass == Pass::BI && reader.tags.pass == Pass::BW;
    if (halves) return source;  // of one backward: terms of sums stay such
    PIPER_CHECK(check_sharded(value, producer, reader));
    const Residence &made = residence_of(producer), &used = residence_of(reader);
    const auto from = made.expert_group(), to = used.expert_group();
    const bool leaves = from && (producer.group != reader.group || from != to);
    const bool routed = labelled((*dag_.model)[value].shape, routed_label);
    if (leaves && routed) {  // sums come back by rows, and are completed where there are fewer
      PIPER_TRY(source, exchanged(source, value, inside_experts(), outside_experts(), edge.from));
    }
    BySampleAxis<Placement> wanted;
    for (const SampleAxisRule& rule : sample_axes) wanted[rule.axis] = wanted_along(rule.axis, dag_, reader, value);
    for (const SampleAxisRule& rule : sample_axes)
      if (const Placement now = placement_along(rule.axis, dag_, producer, value); now.is_partial()) {
        const bool scatters = wanted[rule.axis].is_shard() && now.op == Partial::Sum;
        source = redistributed(rule.axis, source, value, scatters ? wanted[rule.axis] : Placement::replicate(),
                               producer, made.find(rule.axis));
      }
    const auto as_wanted = [&](NodeId node, const Node& at, bool only_shards) {
      for (const SampleAxisRule& rule : sample_axes)
        if (!only_shards || wanted[rule.axis].is_shard())
          node = redistributed(rule.axis, node, value, wanted[rule.axis], at,
                               (used.group_along(rule.axis) ? used : made).find(rule.axis));
      return node;
    };
    if (producer.group == reader.group && from == to) return as_wanted(source, reader, false);
    if (leaves && !routed) {
      PIPER_TRY(source, exchanged(source, value, inside_experts(), outside_experts(), edge.from));
    }
    if (producer.group != reader.group) {
      source = as_wanted(source, producer, true);
      PIPER_TRY(source, transfer(source, value, producer, reader));
    }
    source = as_wanted(source, reader, false);
    if (to) {
      PIPER_TRY(source, exchanged(source, value, outside_experts(), inside_experts(), edge.to));
    }
    return source;
  }

  /// Made once for every way to have a value of a source on a group.
  struct Way {
    GroupId group;
    std::optional<CollectiveKind> kind;  // none: a transfer
    PartitionId over;
    bool again = false;             // for this reader alone
    std::optional<Pass> pass = {};  // of a shift: for readers in this pass alone
    int rotation = 0;               // and where it leads
    friend bool operator==(const Way&, const Way&) = default;
  };
  template <class Make>
  NodeId once(NodeId source, ValueId value, const Way& way, Make make) {
    const uint64_t key = (static_cast<uint64_t>(source.value) << 32) | static_cast<uint32_t>(value.value);
    for (const auto& [known, node] : made_[key])
      if (known == way) return node;
    const NodeId node = dag_.add(make());
    dag_.edges.push_back({source, node, Item::value(value), {}});
    made_[key].emplace_back(way, node);
    return node;
  }

  /// The value in this placement along the axis. `at`: the computation at whose border; `by`: what asked for it.
  NodeId redistributed(SampleAxis axis, NodeId source, ValueId value, const Placement& to, const Node& at,
                       const Sharding* by) {
    const Placement now = placement_along(axis, dag_, dag_[source], value);
    const auto kind = redistribute(now, to);
    if (!kind) return source;
    if (kind == CollectiveKind::Shift) {
      for (const auto& [rotation, chunk] : stops(value))
        if (now.rotation < rotation && rotation < to.rotation) source = shifted(source, value, rotation, chunk, at, by);
      return shifted(source, value, to.rotation, at.tags.chunk, at, by);
    }
    const bool again = kind == CollectiveKind::AllGather && at.tags.pass != Pass::F &&
                       residence_of(at).group_along(axis) && by->regather;
    const PartitionId over = dag_.groups.along(at.group, {dag_.shared[axis].name});
    return once(source, value, {at.group, kind, over, again}, [&] {
      NodeTags tags = at.tags;
      if (!again) tags.pass = dag_[source].tags.pass;  // for whoever comes later too
      const Collective op{*kind, Item::value(value), over};
      return Node{op, tags, at.group, dag_.stream(by->stream), by->by, by->by, source};
    });
  }

  /// The steps of a ring at which it is used, and where.
  const std::map<int, ChunkId>& stops(ValueId value) {
    if (stops_.empty()) {
      stops_.resize(dag_.model->values.size());
      for (size_t c = 0; c < dag_.model->chunks.size(); ++c)
        for (const Chunk& chunk = dag_.model->chunks[c]; const ValueId rotated : chunk.rotated)
          stops_[rotated.index()].emplace(*chunk.rotation, c);
    }
    return stops_[value.index()];
  }
  /// One step on in a ring: from device to device, so that a device has the shard of the one `rotation` before it.
  NodeId shifted(NodeId source, ValueId value, int rotation, ChunkId chunk, const Node& at, const Sharding* by) {
    const PartitionId over = dag_.groups.along(at.group, {dag_.shared[SampleAxis::Cp].name});
    return once(source, value, {at.group, CollectiveKind::Shift, over, false, at.tags.pass, rotation}, [&] {
      NodeTags tags = at.tags;
      tags.chunk = chunk;
      const Placement now = placement_along(SampleAxis::Cp, dag_, dag_[source], value);
      const int places = shift_by(now, Placement::shard(now.label, rotation), dag_.groups[over].part_size);
      const Collective op{CollectiveKind::Shift, Item::value(value), over, places};
      return Node{op, tags, at.group, dag_.stream(by->stream), by->by, by->by, source};
    });
  }

  /// A value of which every device has a shard is used only where the same devices divide the work.
  Checked check_sharded(ValueId id, const Node& producer, const Node& reader) const {
    const Value& value = (*dag_.model)[id];
    const Residence &made = residence_of(producer), &used = residence_of(reader);
    const auto divides = [](const Residence& r) { return r.find(ShardKind::Tp) && r.group_along(SampleAxis::Tp); };
    if (!labelled(value.shape, tp_label) || (!made.group_along(SampleAxis::Tp) && !divides(used))) return Ok{};
    if (producer.group == reader.group && made.group_along(SampleAxis::Tp) == used.group_along(SampleAxis::Tp))
      return Ok{};
    const bool sharded_first = made.group_along(SampleAxis::Tp).has_value();
    return error(ErrorCode::E317, dag_.where_filter((sharded_first ? made : used).find(SampleAxis::Tp)->by),
                 fmt::format("shard: value {} {} is {} in chunk {}, and used {} in {}", value.name, print(value.shape),
                             sharded_first ? "divided" : "whole", (*dag_.model)[producer.tags.chunk].name,
                             sharded_first ? "whole" : "divided", (*dag_.model)[reader.tags.chunk].name))
        .help("select all chunks that use it");
  }

  /// Into the experts or out of them. `at`: the computation on experts.
  Result<NodeId> exchanged(NodeId source, ValueId id, const Placement& from, const Placement& to, NodeId at) {
    const Value& value = (*dag_.model)[id];
    const Node inside = dag_[at];
    const Residence& residence = residence_of(inside);
    const std::optional<ValueId> routed_by = (*dag_.model)[inside.tags.chunk].routed_by;
    if (routed_by == id) return experts_node(source, id, CollectiveKind::AllGather, inside);
    if (routed_by && labelled(value.shape, routed_label)) {
      const NodeId rows = experts_node(source, id, CollectiveKind::AllToAll, inside);
      if (!sized_.insert(rows).second) return rows;
      PIPER_TRY(const NodeId ends, deliver(ends_.at(at)));
      dag_.edges.push_back({ends, rows, Item::value(*routed_by), {}});
      return rows;
    }
    if (!labelled(value.shape, from.label) || !labelled(value.shape, to.label))
      return error(ErrorCode::E308, dag_.where_filter(residence.find(ShardKind::Expert)->by),
                   fmt::format("shard: value {} {} crosses the border of {} and has no expert and capacity dimension",
                               value.name, print(value.shape), (*dag_.model)[inside.tags.chunk].name))
          .help("draw the scope around the experts only: what enters and leaves it is [experts, capacity, …]");
    if (residence.group_along(SampleAxis::Tp) && labelled(value.shape, tp_label))
      return error(ErrorCode::E317, dag_.where_filter(residence.find(SampleAxis::Tp)->by),
                   fmt::format("shard: value {} {} is divided, and crosses the border of the experts in {}", value.name,
                               print(value.shape), (*dag_.model)[inside.tags.chunk].name))
          .help("shard only what stays inside of the experts, such as their inner width");
    return experts_node(source, id, redistribute(from, to).value(), inside);
  }
  NodeId experts_node(NodeId source, ValueId id, CollectiveKind kind, const Node& inside) {
    const PartitionId over = *residence_of(inside).expert_group();
    return once(source, id, {inside.group, kind, over}, [&] {
      const Sharding& experts = *residence_of(inside).find(ShardKind::Expert);
      const Collective op{kind, Item::value(id), over};
      return Node{op, inside.tags, inside.group, dag_.stream(experts.stream), experts.by, experts.by, source};
    });
  }

  Result<NodeId> transfer(NodeId source, ValueId id, const Node& producer, const Node& reader) {
    const Value& value = (*dag_.model)[id];
    if (dag_.groups[producer.group].size() != dag_.groups[reader.group].size() && !sample_dimension(value.shape))
      return error(ErrorCode::E311, dag_.where_devices(reader.placed_by),
                   fmt::format("value {} {} goes from {} to {}, but {}", value.name, print(value.shape),
                               print_devices(dag_.groups[producer.group].devices),
                               print_devices(dag_.groups[reader.group].devices),
                               has_batch_dimension(value) ? "its samples have no dimension of their own to cut it by"
                                                          : "has no batch dimension to cut it by"))
          .note(dag_.where_devices(producer.placed_by), "its producer is placed here")
          .help("use groups of equal size on both sides")
          .help(has_batch_dimension(value)
                    ? "or keep them apart from tokens and slots where the value leaves its scope: [samples, tokens, …]"
                    : "");
    const Residence& residence = dag_.residence(producer.tags.chunk, producer.group);
    return once(source, id, {reader.group, std::nullopt, {}}, [&] {
      return Node{Transfer{id, producer.group},
                  producer.tags,
                  reader.group,
                  residence.transfer_stream,
                  reader.placed_by,
                  reader.placed_by,
                  source};
    });
  }

  /// Inputs are read where needed; inside a sharded region every device would need all of them.
  Checked check_inputs() const {
    for (size_t c = 0; c < dag_.residences.size(); ++c) {
      for (const Residence& residence : dag_.residences[c]) {
        if (!residence.expert_group()) continue;
        for (const auto& work : dag_.model->chunks[c].work)
          for (const ValueId value : work ? work->reads : std::vector<ValueId>{})
            if ((*dag_.model)[value].kind == ValueKind::Input)
              return error(ErrorCode::E308, dag_.where_filter(residence.find(ShardKind::Expert)->by),
                           fmt::format("shard: chunk {} reads the input {}, which is not dispatched to experts",
                                       dag_.model->chunks[c].name, (*dag_.model)[value].name))
                  .help("read it before the region, and let what is dispatched carry it");
      }
    }
    return Ok{};
  }

  TrainingDag& dag_;
  std::map<NodeId, Edge> ends_;  // by computation on sorted rows: what says where those of each expert end
  std::set<NodeId> sized_;       // exchanges that know how many rows there are
  std::unordered_map<uint64_t, std::vector<std::pair<Way, NodeId>>> made_;
  std::vector<std::map<int, ChunkId>> stops_;  // by value
};

}  // namespace

Result<TrainingDag> insert_communication(TrainingDag dag) {
  PIPER_CHECK(Inserter(dag).run());
  return dag;
}

}  // namespace piper
