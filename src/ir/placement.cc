#include "ir/placement.h"

#include <algorithm>

#include "base/invariant.h"

namespace piper {

std::optional<CollectiveKind> redistribute(const Placement& from, const Placement& to) {
  if (from == to || to.is_partial()) return std::nullopt;
  const bool shifts = from.is_shard() && from.label == to.label;
  invariant(shifts || (from.rotation == 0 && to.rotation == 0), "what was shifted is shifted back first");
  switch (from.kind) {
    case Placement::Kind::Replicate:
      return CollectiveKind::LocalSlice;
    case Placement::Kind::Shard:
      if (shifts) return CollectiveKind::Shift;
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
  const bool gathers_ends = collective.kind == CollectiveKind::AllGather && collective.item.is_value() &&
                            labelled((*dag.model)[collective.item.value_id()].shape, expert_label);
  if (gathers_ends || collective.kind == CollectiveKind::Rounds ||
      (collective.kind == CollectiveKind::AllToAll && dag.shared[SampleAxis::Cp].size == 1))
    return std::nullopt;
  const Partition& over = dag.groups[collective.over];
  const DeviceList& group = dag.groups[over.group].devices;
  const auto position = [&](size_t member) { return std::ranges::find(group, over.members[member]) - group.begin(); };
  return position(1) - position(0) == dag.tp().size ? SampleAxis::Cp : SampleAxis::Tp;
}

/// What an all-to-all makes of a value: what is divided outside of a region becomes what is divided in it, or the
/// reverse.
Placement exchanged(SampleAxis axis, const Placement& before) {
  for (const ShardRule& rule : shard_rules)
    if (rule.axis == axis && !rule.outside.empty())
      return Placement::shard(before.label == rule.outside ? rule.label : rule.outside);
  return before;
}

}  // namespace

Placement placement_after_exchange(const TrainingDag& dag, const Node& exchange, ValueId value) {
  if (const auto axis = axis_of(dag, std::get<Collective>(exchange.op)))
    return placement_along(*axis, dag, exchange, value);
  return leaves_experts(dag, exchange) ? outside_experts() : inside_experts();
}

bool leaves_region(const TrainingDag& dag, const Node& exchange, ValueId value) {
  const std::string_view divided = placement_after_exchange(dag, exchange, value).label;
  return std::ranges::find(shard_rules, divided, &ShardRule::outside) != shard_rules.end();
}

/// What comes from inside a region, perhaps summed up there, leaves it; everything else goes into one.
bool leaves_experts(const TrainingDag& dag, const Node& exchange) {
  const Node* source = exchange.made_from.valid() ? &dag[exchange.made_from] : nullptr;
  if (const auto* sum = source ? std::get_if<Collective>(&source->op) : nullptr;
      sum && sum->kind == CollectiveKind::AllReduce)
    source = &dag[source->made_from];
  return source && is_compute(*source) && dag.residence(source->tags.chunk, source->group).expert_group();
}

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
      return exchanged(axis, before());
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
