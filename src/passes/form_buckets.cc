#include "passes/form_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/saturate.h"
#include "ir/local_size.h"
#include "passes/passes.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// A group that holds a parameter: which of its devices have equal copies, and what directive says so.
struct Holding {
  GroupId group;
  PartitionId copies;
  ShardCounts shards;
  std::optional<PartitionId> sums;
  std::optional<Replication> replication;
  DirectiveId sharded_by;
  ChunkId chunk;  // one that uses the parameter there

  DirectiveId by() const { return replication ? replication->by : DirectiveId(); }
};

struct ParameterUse {
  std::vector<Holding> holdings;
  int first_chunk = std::numeric_limits<int>::max();
  bool trainable = false;
  bool everywhere = false;  // whole on every device that uses it, whatever the directives say
};

bool overlap(const TrainingDag& dag, GroupId a, GroupId b) {
  const DeviceList &one = dag.groups[a].devices, &two = dag.groups[b].devices;
  const std::set<int> members(one.begin(), one.end());
  return std::any_of(two.begin(), two.end(), [&](int d) { return members.contains(d); });
}

/// The directive to show for a holding: its replicate, or the place that put it there.
DirectiveId shown(const TrainingDag& dag, const Holding& holding) {
  return holding.replication ? holding.by() : who_placed(dag, holding.chunk, holding.group);
}

/// Parameters that no directive replicates are kept as the usual one would.
Replication replication_of(const Holding& holding) {
  const Replicate usual;
  return holding.replication.value_or(
      Replication{{}, 0, usual.bucket, usual.release, usual.gather_stream, usual.reduce_stream, {}});
}

/// One device has nothing to divide or to reduce, whatever its directives say.
bool same_way(const TrainingDag& dag, const Holding& a, const Holding& b) {
  if (a.by() == b.by() || dag.groups[a.copies].part_size == 1) return true;
  const auto way = [&](const Holding& holding) {
    Replication out = replication_of(holding);
    out.over = {};
    out.by = {};
    return out;
  };
  return way(a) == way(b);
}

Checked add_holding(const TrainingDag& dag, const Parameter& parameter, ParameterUse& use, const Holding& next) {
  for (const Holding& known : use.holdings) {
    const bool same_parts = known.copies == next.copies && known.shards == next.shards && known.sums == next.sums;
    if (known.group == next.group && same_parts && same_way(dag, known, next)) return Ok{};
    if (!use.trainable && known.shards.all() == 1 && next.shards.all() == 1 &&
        (known.group == next.group ? same_parts : overlap(dag, known.group, next.group))) {
      use.everywhere = true;  // nothing of it is ever reduced or updated, so any copy will do
      continue;
    }
    if (known.group == next.group && !same_parts)
      return error(
                 known.shards[ShardKind::Expert] != next.shards[ShardKind::Expert] ? ErrorCode::E308 : ErrorCode::E317,
                 dag.where_filter(next.shards.all() > known.shards.all() ? next.sharded_by : known.sharded_by),
                 fmt::format("parameter {} is used inside and outside a region that is divided: by {} and {}",
                             parameter.name, (*dag.model)[known.chunk].name, (*dag.model)[next.chunk].name))
          .help("select all chunks that use it, or give each its own parameter");
    if (known.group == next.group)
      return error(ErrorCode::E301, dag.where_filter(shown(dag, next)),
                   fmt::format("parameter {} is replicated in two ways on the same devices", parameter.name))
          .note(dag.where_filter(shown(dag, known)), "the other way")
          .help("chunks that share a parameter need one replicate directive, or equal arguments in all of theirs");
    if (overlap(dag, known.group, next.group))
      return error(ErrorCode::E310, dag.where_devices(shown(dag, next)),
                   fmt::format("parameter {} lives on {} and on {}, which overlap but are not equal", parameter.name,
                               print_devices(dag.groups[known.group].devices),
                               print_devices(dag.groups[next.group].devices)))
          .note(dag.where_devices(shown(dag, known)), "the other group")
          .help("place the chunks that share it on the same devices, or on devices of their own");
    if (known.shards.all() != next.shards.all())
      return error(ErrorCode::E310, dag.where_devices(next.sharded_by.valid() ? next.sharded_by : known.sharded_by),
                   fmt::format("parameter {} is cut into {} parts on {} and into {} on {}", parameter.name,
                               known.shards.all(), print_devices(dag.groups[known.group].devices), next.shards.all(),
                               print_devices(dag.groups[next.group].devices)))
          .help("shard the chunks that share it over equally many devices");
  }
  use.holdings.push_back(next);
  return Ok{};
}

Holding holding_of(TrainingDag& dag, const Parameter& parameter, const Residence& residence, ChunkId chunk) {
  Holding out;
  out.group = residence.group;
  out.replication = residence.replication;
  if (!residence.shardings.empty()) out.sharded_by = residence.shardings[0].by;
  out.chunk = chunk;
  std::optional<PartitionId> divided;
  bool along_tp = false;
  for (const Sharding& sharding : residence.shardings) {
    if (!sharding.along || !labelled(parameter.shape, label_of(sharding.kind))) continue;
    divided = divided ? dag.groups.grid(*divided, *sharding.along) : sharding.along;
    out.shards[sharding.kind] = dag.groups[*sharding.along].part_size;
    along_tp = along_tp || rule_of(sharding.kind).axis == SampleAxis::Tp;
  }
  out.copies = divided ? dag.groups.across(*divided) : dag.groups.whole(residence.group);
  if (!along_tp)  // devices with the same data have the same gradients: each of them is summed up by itself
    out.copies = dag.groups.apart(out.copies, dag.tp().size);
  if (parameter.partial) out.sums = residence.group_along(SampleAxis::Tp);
  return out;
}

/// One copy on every device, instead of what single groups would hold.
Holding everywhere(TrainingDag& dag, const std::vector<Holding>& holdings) {
  std::set<int> devices;
  for (const Holding& holding : holdings) {
    const DeviceList& here = dag.groups[holding.group].devices;
    devices.insert(here.begin(), here.end());
  }
  Holding out = holdings[0];
  out.replication = {};
  out.group =
      dag.groups.intern(DeviceGroup{{devices.begin(), devices.end()}, {{"", static_cast<int>(devices.size())}}});
  out.copies = dag.groups.apart(dag.groups.whole(out.group), dag.tp().size);
  return out;
}

Result<std::vector<ParameterUse>> find_uses(TrainingDag& dag) {
  const ModelGraph& model = *dag.model;
  std::vector<ParameterUse> uses(model.parameters.size());
  for (const Chunk& chunk : model.chunks)
    for (const auto& work : chunk.work)
      if (work)
        for (const ParameterId p : work->gradients) uses[p.index()].trainable = true;
  for (size_t c = 0; c < model.chunks.size(); ++c) {
    std::set<ParameterId> parameters;
    for (const auto& work : model.chunks[c].work) {
      if (!work) continue;
      parameters.insert(work->parameters.begin(), work->parameters.end());
      parameters.insert(work->gradients.begin(), work->gradients.end());
    }
    for (const ParameterId p : parameters) {
      ParameterUse& use = uses[p.index()];
      use.first_chunk = std::min(use.first_chunk, static_cast<int>(c));
      for (const Residence& residence : dag.residences[c]) {
        PIPER_CHECK(add_holding(dag, model[p], use, holding_of(dag, model[p], residence, ChunkId(c))));
      }
    }
  }
  for (ParameterUse& use : uses)
    if (use.everywhere) use.holdings = {everywhere(dag, use.holdings)};
  // who holds a parameter is a set: the two ways of a two-way placement share their buckets
  for (ParameterUse& use : uses)
    std::sort(use.holdings.begin(), use.holdings.end(), [&](const Holding& a, const Holding& b) {
      return dag.groups[a.group].devices <
             dag.groups[b.group].devices;  // not by id: that depends on the order of the file
    });
  return uses;
}

Holder make_holder(TrainingDag& dag, const Holding& holding) {
  const Replication replication = replication_of(holding);
  const bool alone = dag.groups[holding.copies].part_size == 1;
  return {holding.group,
          holding.copies,
          holding.shards,
          holding.sums,
          alone ? 0 : replication.zero,
          replication.release,
          dag.stream(replication.gather_stream),
          dag.stream(replication.reduce_stream),
          holding.by()};
}

int64_t bucket_limit(const std::vector<Holding>& holdings) {
  int64_t limit = std::numeric_limits<int64_t>::max();
  for (const Holding& holding : holdings)
    if (holding.replication) limit = std::min(limit, holding.replication->bucket);
  return limit;
}

}  // namespace

Checked form_buckets(TrainingDag& dag) {
  const ModelGraph& model = *dag.model;
  PIPER_TRY(std::vector<ParameterUse> uses, find_uses(dag));
  std::vector<size_t> backward_order;
  for (size_t p = 0; p < uses.size(); ++p)
    if (!uses[p].holdings.empty()) backward_order.push_back(p);
  std::stable_sort(backward_order.begin(), backward_order.end(),
                   [&](size_t a, size_t b) { return uses[a].first_chunk > uses[b].first_chunk; });
  using Key = std::vector<int>;
  std::map<Key, BucketId> open;
  for (const size_t p : backward_order) {
    const bool whole = uses[p].trainable && is_updated_whole(model.step, model.parameters[p].name);
    Key key = {static_cast<int>(model.parameters[p].dtype), uses[p].trainable, whole};
    for (const Holding& holding : uses[p].holdings) {
      key.insert(key.end(), {holding.group.value, holding.copies.value, holding.sums.value_or(PartitionId()).value,
                             holding.by().value});
      for (const int64_t count : holding.shards.of) key.push_back(static_cast<int>(count));
    }
    const int64_t elements_here = elements(model.parameters[p].shape, 0) / uses[p].holdings[0].shards.all();
    const auto found = open.find(key);
    const auto full = [&](const Bucket& bucket) {
      const int64_t bytes =
          saturating_multiply(saturating_add(bucket.elements, elements_here), bytes_of(model.step.gradients));
      return bytes > bucket_limit(uses[p].holdings);
    };
    if (found == open.end() || full(dag.buckets[found->second.index()])) {
      Bucket bucket{{}, model.parameters[p].dtype, uses[p].trainable, 0, {}, whole};
      for (const Holding& holding : uses[p].holdings) bucket.holders.push_back(make_holder(dag, holding));
      dag.buckets.push_back(std::move(bucket));
      open[key] = BucketId(dag.buckets.size() - 1);
    }
    Bucket& bucket = dag.buckets[open[key].index()];
    bucket.parameters.push_back(ParameterId(p));
    bucket.elements = saturating_add(bucket.elements, elements_here);
  }
  return Ok{};
}

}  // namespace piper
