#include "ir/placement.h"

#include <algorithm>

namespace piper {

std::optional<CollectiveKind> redistribute(const Placement& from, const Placement& to) {
  if (from == to || to.is_partial()) return std::nullopt;
  switch (from.kind) {
    case Placement::Kind::Replicate:
      return CollectiveKind::LocalSlice;
    case Placement::Kind::Shard:
      if (from.label == to.label) return CollectiveKind::Shift;
      return to.is_shard() ? CollectiveKind::AllToAll : CollectiveKind::AllGather;
    case Placement::Kind::Partial:
      return to.is_shard() ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce;
  }
  return std::nullopt;
}

namespace {

/// Of attention whose tokens are divided everywhere else.
bool needs_all_tokens(const TrainingDag& dag, const Node& node, const Sharding& sharding, ValueId value) {
  return sharding.kind == ShardKind::Context && (*dag.model)[node.tags.chunk].has_all_tokens(value);
}

/// What the devices along an axis have of a value that a computation writes: as it works on it, or terms of a sum.
Placement written_along(SampleAxis axis, const TrainingDag& dag, const Node& writer, ValueId id) {
  const Sharding* sharding = dag.residence(writer.tags.chunk, writer.group).find(axis);
  if (!sharding || !sharding->along) return Placement::replicate();
  const Partial partial = axis == SampleAxis::Tp                         ? (*dag.model)[id].partial
                          : needs_all_tokens(dag, writer, *sharding, id) ? Partial::Sum
                                                                         : Partial::No;
  return partial != Partial::No ? Placement::partial(partial) : wanted_along(axis, dag, writer, id);
}

/// The axis that a collective on a value goes along; none: it exchanges experts, of which models whose tokens are
/// divided have none.
std::optional<SampleAxis> axis_of(const TrainingDag& dag, const Collective& collective) {
  if (collective.kind == CollectiveKind::AllToAll && dag.shared[SampleAxis::Cp].size == 1) return std::nullopt;
  const Partition& over = dag.groups[collective.over];
  const DeviceList& group = dag.groups[over.group].devices;
  const auto position = [&](size_t member) { return std::ranges::find(group, over.members[member]) - group.begin(); };
  return position(1) - position(0) == dag.tp().size ? SampleAxis::Cp : SampleAxis::Tp;
}

}  // namespace

Placement placement_along(SampleAxis axis, const TrainingDag& dag, const Node& node, ValueId id) {
  if (dag.shared[axis].size == 1) return Placement::replicate();
  if (is_compute(node)) return written_along(axis, dag, node, id);
  const auto before = [&] {
    return node.made_from.valid() ? placement_along(axis, dag, dag[node.made_from], id) : Placement::replicate();
  };
  const auto* collective = std::get_if<Collective>(&node.op);
  if (!collective) return before();
  if (axis_of(dag, *collective) != axis) return before();
  switch (collective->kind) {
    case CollectiveKind::AllToAll:
      return Placement::shard(before().label == sequence_label ? tp_label : sequence_label);
    case CollectiveKind::Shift: {
      Placement moved = before();
      moved.rotation = (moved.rotation + collective->by) % dag.shared[axis].size;
      return moved;
    }
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::LocalSlice:
      return Placement::shard(labelled((*dag.model)[id].shape, sequence_label) ? sequence_label : tp_label);
    default:
      return Placement::replicate();
  }
}

Placement wanted_along(SampleAxis axis, const TrainingDag& dag, const Node& reader, ValueId value) {
  if (dag.shared[axis].size == 1) return Placement::replicate();
  const Sharding* sharding = dag.residence(reader.tags.chunk, reader.group).find(axis);
  if (!sharding || !sharding->along || !labelled((*dag.model)[value].shape, label_of(sharding->kind)) ||
      needs_all_tokens(dag, reader, *sharding, value))
    return Placement::replicate();
  return Placement::shard(label_of(sharding->kind),
                          axis == SampleAxis::Cp ? (*dag.model)[reader.tags.chunk].rotation_of(value) : 0);
}

}  // namespace piper
