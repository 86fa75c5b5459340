#include "plan/plan_tables.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "base/overloaded.h"
#include "base/saturate.h"
#include "ir/local_size.h"
#include "ir/placement.h"

namespace piper {
namespace {

void add_communication(PlanTables& tables, const TrainingDag& dag, NodeId id) {
  const Node& node = dag[id];
  Communication c;
  c.label = label_of(tables, node);
  if (const auto* transfer = std::get_if<Transfer>(&node.op)) {
    c.transfer = true;
    c.from = transfer->from;
    c.to = node.group;
    c.shards = written_shards(dag, node, transfer->value);
  } else if (const auto* collective = std::get_if<Collective>(&node.op)) {
    c.over = collective->over;
    if (collective->kind == CollectiveKind::AllToAll)
      c.exchange = leaves_region(dag, node, collective->item.value_id()) ? Exchange::Gather : Exchange::Divide;
    c.by = collective->by;
    c.buffer = row_buffer(dag, node);
    c.maximum = collective->kind == CollectiveKind::AllReduce && collective->item.is_value() &&
                (*dag.model)[collective->item.value_id()].partial == Partial::Max;
  } else {
    return;
  }
  c.bytes = moved_bytes(dag, node);
  tables.communication[id] = tables.plan.communications.add(c);
}

/// Whether gradients are summed as one device does that runs all slices in turn: slice by slice, last chunk first.
std::vector<bool> sums_in_order(const TrainingDag& dag, const std::vector<NodeId>& order) {
  std::vector<bool> ordered(dag.model->parameters.size(), true);
  std::vector<std::pair<int, int>> last(ordered.size(), {-1, 0});
  for (const NodeId id : order) {
    const Node& node = dag[id];
    if (!is_compute(node)) continue;
    for (const ParameterId p : work_of(dag, node).gradients) {
      const std::pair<int, int> next{node.tags.slice, -node.tags.chunk.value};
      if (next < last[p.index()]) ordered[p.index()] = false;
      last[p.index()] = next;
    }
  }
  for (const Bucket& bucket : dag.buckets)
    if (bucket.holders.size() > 1 || dag.groups[bucket.holders[0].group].size() > 1)
      for (const ParameterId p : bucket.parameters) ordered[p.index()] = false;
  return ordered;
}

void add_buckets(PlanTables& tables, const TrainingDag& dag, const std::vector<NodeId>& order) {
  const std::vector<bool> ordered = sums_in_order(dag, order);
  for (size_t b = 0; b < dag.buckets.size(); ++b) {
    const Bucket& bucket = dag.buckets[b];
    PlanBucket out{tables.bucket_name[BucketId(b)], bucket.dtype, dag.model->step.gradients, {}, {}, bucket.matrices};
    const int64_t shards = bucket.holders[0].shards.all();
    for (const ParameterId p : bucket.parameters)
      out.parameters.push_back({tables.plan.names.add((*dag.model)[p].name),
                                elements((*dag.model)[p].shape, 0) / shards, bucket.trainable && ordered[p.index()],
                                (*dag.model)[p].sharded});
    for (const Holder& holder : bucket.holders)
      out.holders.push_back({holder.group, holder.copies, holder.zero > 0, holder.shards});
    tables.plan.buckets.push_back(std::move(out));
  }
}

/// Every device that computes a loss does so for its part of every slice; several values of one slice are one loss.
int64_t count_losses(const TrainingDag& dag) {
  std::map<int, int64_t> parts;  // by slice
  for (const Node& node : dag.nodes) {
    if (!is_compute(node) || node.tags.pass != Pass::F) continue;
    for (const ValueId value : work_of(dag, node).writes)
      if ((*dag.model)[value].kind == ValueKind::Loss)
        parts[node.tags.slice] = std::max<int64_t>(parts[node.tags.slice], data_parts(dag, node.group));
  }
  int64_t count = 0;
  for (const auto& [slice, size] : parts) count += size;
  return count;
}

/// Works of a plan, each stored once.
class WorkTable {
 public:
  WorkTable(PlanTables& tables, const TrainingDag& dag) : tables_(tables), dag_(dag) {}

  /// The first one; where devices of the group have different works, the others follow.
  WorkId of(const Node& node) {
    const WorkId first = of(node, 0);
    for (int other = 1; other < different_works(dag_, node); ++other) of(node, other);
    return first;
  }

 private:
  WorkId of(const Node& node, int which) {
    if (is_compute(node) || is_rounds(node)) {
      const int key = is_rounds(node) ? rounds : which;
      return intern({node.tags.chunk.value, static_cast<int>(*node.tags.pass), node.group.value, key},
                    [&] { return of_passes(node, which); });
    }
    if (const auto* update = std::get_if<Update>(&node.op)) {
      return intern({update->bucket.value, -1 - static_cast<int>(update->phase), node.group.value, 0}, [&] {
        return PlanWork{tables_.bucket_name[update->bucket],
                        std::nullopt,
                        0,
                        dag_.model->step.weights,
                        update_work(dag_, node),
                        node.group};
      });
    }
    return {};
  }

  /// Of further rounds: what they do for a balanced load.
  PlanWork of_passes(const Node& node, int token_shard) const {
    PlanWork out{tables_.chunk_name[node.tags.chunk],
                 node.tags.pass,
                 samples_on(dag_, node.group),
                 dag_.model->step.weights,
                 {},
                 node.group};
    for (const PassWork* work : works_of(dag_, node)) {
      DeviceWork more = local_work(dag_, node.tags.chunk, *work, node.group, token_shard);
      if (out.does.flops == 0 && out.does.bytes == 0 && !out.does.operators)
        out.does = std::move(more);
      else
        add(out.does, more);
    }
    const Residence& residence = dag_.residence(node.tags.chunk, node.group);
    for (const Sharding& sharding : residence.shardings)
      if (sharding.along) out.shards[sharding.kind] = *sharding.along;
    out.buffer = shard_counts(dag_, residence).buffer;
    out.float8 = dag_.float8.contains(node.tags.chunk);
    return out;
  }
  static void add(DeviceWork& to, const DeviceWork& more) {
    to.flops = saturating_add(to.flops, more.flops);
    to.bytes = saturating_add(to.bytes, more.bytes);
    if (!to.operators || !more.operators) return to.operators.reset();
    std::vector<MatrixProduct>& products = to.operators->products;
    products.insert(products.end(), more.operators->products.begin(), more.operators->products.end());
    to.operators->streamed = saturating_add(to.operators->streamed, more.operators->streamed);
    to.operators->kernels = saturating_add(to.operators->kernels, more.operators->kernels);
  }

  static constexpr int rounds = -1;  // in place of a part of the tokens

  template <class Make>
  WorkId intern(const std::tuple<int, int, int, int>& key, Make make) {
    const auto [found, fresh] = index_.try_emplace(key, tables_.plan.works.size());
    if (fresh) tables_.plan.works.push_back(make());
    return found->second;
  }

  PlanTables& tables_;
  const TrainingDag& dag_;
  std::map<std::tuple<int, int, int, int>, WorkId> index_;
};

}  // namespace

PlanLabel label_of(const PlanTables& tables, const Node& node) {
  const auto item_name = [&](Item item) {
    if (item.is_value()) return tables.value_name[item.value_id()];
    if (item.kind == Item::Kind::Scalars) return tables.scalars_name;
    return tables.bucket_name[item.bucket_id()];
  };
  const NameId name = std::visit(overloaded{
                                     [&](const Compute&) { return tables.chunk_name[node.tags.chunk]; },
                                     [&](const Transfer& t) { return tables.value_name[t.value]; },
                                     [&](const Collective& c) { return item_name(c.item); },
                                     [&](const Update& u) { return tables.bucket_name[u.bucket]; },
                                 },
                                 node.op);
  return {name, node.tags.pass, node.tags.slice};
}

PlanTables make_tables(const TrainingDag& dag, const std::vector<NodeId>& order, uint64_t costs) {
  PlanTables tables;
  Plan& plan = tables.plan;
  plan.model = dag.model->name;
  plan.costs = costs;
  for (const SliceDim& dim : dag.dims) plan.dims.push_back({dim.name, dim.parts});
  for (const Origin& origin : dag.origins) plan.origins.push_back({origin.place, origin.text});
  for (size_t g = 0; g < dag.groups.group_count(); ++g) plan.groups.push_back(dag.groups[GroupId(g)].devices);
  for (size_t p = 0; p < dag.groups.partition_count(); ++p)
    plan.partitions.push_back({dag.groups[PartitionId(p)].part_size, dag.groups[PartitionId(p)].members});
  for (const Chunk& chunk : dag.model->chunks) tables.chunk_name.push_back(plan.names.add(chunk.name));
  for (const Value& value : dag.model->values) tables.value_name.push_back(plan.names.add(value.name));
  for (size_t b = 0; b < dag.buckets.size(); ++b)
    tables.bucket_name.push_back(plan.names.add(bucket_name(dag, BucketId(b))));
  tables.bucket_of = bucket_of_parameter(dag);
  add_buckets(tables, dag, order);
  plan.losses = count_losses(dag);
  for (const SampleAxisRule& rule : sample_axes) plan.shared[rule.axis] = dag.shared[rule.axis].size;
  plan.capture = capture_form(*dag.model, dag.token_order);
  tables.scalars_name = plan.names.add("scalars");
  std::vector<char> moves(dag.streams.size(), 0);
  for (const Node& node : dag.nodes)
    if (std::holds_alternative<Transfer>(node.op)) moves[node.stream.index()] = 1;
  for (size_t s = 0; s < dag.streams.size(); ++s) {
    if (moves[s]) {
      tables.send_stream.push_back(plan.streams.add(dag.streams[s] + ".send"));
      tables.receive_stream.push_back(plan.streams.add(dag.streams[s] + ".recv"));
    } else {
      tables.send_stream.push_back(plan.streams.add(dag.streams[s]));
      tables.receive_stream.push_back(tables.send_stream.back());
    }
  }
  tables.communication.resize(dag.nodes.size());
  for (const NodeId id : order) add_communication(tables, dag, id);
  tables.work.resize(dag.nodes.size());
  WorkTable works(tables, dag);
  for (const NodeId id : order) tables.work[id] = works.of(dag[id]);
  return tables;
}

}  // namespace piper
