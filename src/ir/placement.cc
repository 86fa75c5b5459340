#include "ir/placement.h"

namespace piper {

std::optional<CollectiveKind> redistribute(const Placement& from, const Placement& to) {
  if (from == to || to.is_partial()) return std::nullopt;
  switch (from.kind) {
    case Placement::Kind::Replicate:
      return CollectiveKind::LocalSlice;
    case Placement::Kind::Shard:
      return to.is_shard() ? CollectiveKind::AllToAll : CollectiveKind::AllGather;
    case Placement::Kind::Partial:
      return to.is_shard() ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce;
  }
  return std::nullopt;
}

Placement tp_placement(const TrainingDag& dag, const Node& node, ValueId id) {
  const Value& value = (*dag.model)[id];
  if (is_compute(node)) {
    const bool sharded = dag.residence(node.tags.chunk, node.group).tp_group().has_value();
    return sharded && value.partial != Partial::No ? Placement::partial(value.partial)
                                                   : wanted_tp_placement(dag, node, id);
  }
  if (std::holds_alternative<Transfer>(node.op))
    return node.made_from.valid() ? tp_placement(dag, dag[node.made_from], id) : Placement::replicate();
  switch (std::get<Collective>(node.op).kind) {
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::LocalSlice:
      return Placement::shard(sequence_label);
    default:
      return Placement::replicate();
  }
}

Placement wanted_tp_placement(const TrainingDag& dag, const Node& reader, ValueId value) {
  const Sharding* sharding = dag.residence(reader.tags.chunk, reader.group).within_samples();
  if (!sharding || !sharding->along || !labelled((*dag.model)[value].shape, label_of(sharding->kind)))
    return Placement::replicate();
  return Placement::shard(label_of(sharding->kind));
}

}  // namespace piper
