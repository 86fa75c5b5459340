// insert_communication: one transfer per value and receiving group, one exchange per value and border of a sharded
// region, one sum or join of tokens per value and border of a region that is cut, shared by all readers behind it.
//   before:  %b = compute layer.1 F @ [1] <- %a:x1                      (%a on [0])
//   after:   %t = transfer x1 [0] -> [1] <- %a:x1     %b = compute layer.1 F @ [1] <- %t:x1
// Illegal: values that cannot be exchanged (E308) or cut anew (E311).
#include <fmt/format.h>

#include <unordered_map>

#include "ir/local_size.h"
#include "passes/passes.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

class Inserter {
 public:
  explicit Inserter(TrainingDag& dag) : dag_(dag) {}

  Checked run() {
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
  std::optional<PartitionId> layout(const Node& node) const {
    return dag_.residence(node.tags.chunk, node.group).layout;
  }

  /// The node that has the value where the reader wants it.
  Result<NodeId> deliver(const Edge& edge) {
    const Node producer = dag_[edge.from], reader = dag_[edge.to];  // copies: adding nodes moves them
    const ValueId value = edge.item.value_id();
    const auto from = layout(producer), to = layout(reader);
    const Residence &made = dag_.residence(producer.tags.chunk, producer.group),
                    &used = dag_.residence(reader.tags.chunk, reader.group);
    const Residence& cut = used.cut ? used : made;  // says how tokens are joined
    const bool apart = wants_tokens_apart(reader, value);
    NodeId source = edge.from;
    const bool halves = producer.group == reader.group && producer.tags.chunk == reader.tags.chunk &&
                        producer.tags.pass == Pass::BI && reader.tags.pass == Pass::BW;
    if (made.cut && !halves) {  // of one backward: parts of sums stay parts
      PIPER_CHECK(check_divided(value, producer, reader));
      const Partial partial = (*dag_.model)[value].partial;
      const bool scatters = apart && partial == Partial::Sum;
      if (partial != Partial::No)
        source =
            join(scatters ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce, source, value, producer, made);
    }
    if (producer.group == reader.group && from == to) return with_tokens(source, value, reader, apart, cut);
    if (from) {
      PIPER_TRY(source, exchange(source, value, producer, *from));
    }
    if (producer.group != reader.group) {
      if (apart) source = with_tokens(source, value, producer, apart, cut);  // less to send
      PIPER_TRY(source, transfer(source, value, producer, reader));
    }
    source = with_tokens(source, value, reader, apart, cut);
    if (to) {
      PIPER_TRY(source, exchange(source, value, reader, *to));
    }
    return source;
  }

  /// A reader that works on some tokens, and on those of the value.
  bool wants_tokens_apart(const Node& reader, ValueId value) const {
    return (*dag_.model)[reader.tags.chunk].sliced && dag_.residence(reader.tags.chunk, reader.group).cut &&
           labelled((*dag_.model)[value].shape, sequence_label);
  }
  /// All tokens, or each device's own, as the reader wants them.
  NodeId with_tokens(NodeId source, ValueId value, const Node& reader, bool apart, const Residence& cut) {
    if (has_tokens_apart(dag_, dag_[source], value) == apart) return source;
    return join(apart ? CollectiveKind::TakePart : CollectiveKind::AllGather, source, value, reader, cut);
  }

  /// Made once for every (source, value, group, way).
  template <class Make>
  NodeId once(NodeId source, ValueId value, GroupId group, int way, Make make) {
    const uint64_t key = (static_cast<uint64_t>(source.value) << 32) | static_cast<uint32_t>(value.value);
    for (const Made& made : made_[key])
      if (made.group == group && made.way == way) return made.node;
    const NodeId node = dag_.add(make());
    dag_.edges.push_back({source, node, Item::value(value), {}});
    made_[key].push_back({group, way, node});
    return node;
  }

  /// Parts that devices which share samples have: of a sum, or of its tokens. `at`: the computation at whose border.
  NodeId join(CollectiveKind kind, NodeId source, ValueId id, const Node& at, const Residence& cut) {
    const bool again = kind == CollectiveKind::AllGather && at.tags.pass != Pass::F &&
                       dag_.residence(at.tags.chunk, at.group).cut &&
                       std::get<Cut>(dag_.origins[cut.cut_by.index()].body).regather;
    return once(source, id, at.group, 2 * static_cast<int>(kind) + static_cast<int>(again), [&] {
      const Collective op{kind, Item::value(id), dag_.groups.along(at.group, {dag_.shared.name})};
      NodeTags tags = at.tags;
      if (!again) tags.pass = dag_[source].tags.pass;  // for whoever comes later too
      return Node{op, tags, at.group, cut.sum_stream, cut.cut_by, cut.cut_by, source};
    });
  }

  /// A value of which every device has a part is used only where the same devices divide the work.
  Checked check_divided(ValueId id, const Node& producer, const Node& reader) const {
    const Value& value = (*dag_.model)[id];
    const Residence &made = dag_.residence(producer.tags.chunk, producer.group),
                    &used = dag_.residence(reader.tags.chunk, reader.group);
    if (!labelled(value.shape, cut_label) || (producer.group == reader.group && made.cut == used.cut)) return Ok{};
    return error(ErrorCode::E317, dag_.where_filter(made.cut_by),
                 fmt::format("cut: value {} {} is divided in chunk {}, and used whole in {}", value.name,
                             print(value.shape), (*dag_.model)[producer.tags.chunk].name,
                             (*dag_.model)[reader.tags.chunk].name))
        .help("select all chunks that use it");
  }

  Result<NodeId> exchange(NodeId source, ValueId id, const Node& inside, PartitionId layout) {
    const Value& value = (*dag_.model)[id];
    const Residence& residence = dag_.residence(inside.tags.chunk, inside.group);
    if (!labelled(value.shape, divided_label) || !labelled(value.shape, gathered_label))
      return error(ErrorCode::E308, dag_.where_filter(residence.sharded_by),
                   fmt::format("shard: value {} {} crosses the border of {} and has no expert and capacity dimension",
                               value.name, print(value.shape), (*dag_.model)[inside.tags.chunk].name))
          .help("draw the scope around the experts only: what enters and leaves it is [experts, capacity, …]");
    if (residence.cut && labelled(value.shape, cut_label))
      return error(ErrorCode::E317, dag_.where_filter(residence.cut_by),
                   fmt::format("cut: value {} {} is divided, and crosses the border of the experts in {}", value.name,
                               print(value.shape), (*dag_.model)[inside.tags.chunk].name))
          .help("cut only what stays inside of the experts, such as their inner width");
    return once(source, id, inside.group, ways_of_cuts + layout.value, [&] {
      const Collective op{CollectiveKind::AllToAll, Item::value(id), layout};
      return Node{
          op, inside.tags, inside.group, residence.exchange_stream, residence.sharded_by, residence.sharded_by, source};
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
    return once(source, id, reader.group, -1, [&] {
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
        if (!residence.layout) continue;
        for (const auto& work : dag_.model->chunks[c].work)
          for (const ValueId value : work ? work->reads : std::vector<ValueId>{})
            if ((*dag_.model)[value].kind == ValueKind::Input)
              return error(ErrorCode::E308, dag_.where_filter(residence.sharded_by),
                           fmt::format("shard: chunk {} reads the input {}, which is not dispatched to experts",
                                       dag_.model->chunks[c].name, (*dag_.model)[value].name))
                  .help("read it before the region, and let what is dispatched carry it");
      }
    }
    return Ok{};
  }

  static constexpr int ways_of_cuts = 64;
  struct Made {
    GroupId group;
    int way;
    NodeId node;
  };
  TrainingDag& dag_;
  std::unordered_map<uint64_t, std::vector<Made>> made_;
};

}  // namespace

Result<TrainingDag> insert_communication(TrainingDag dag) {
  PIPER_CHECK(Inserter(dag).run());
  return dag;
}

}  // namespace piper
