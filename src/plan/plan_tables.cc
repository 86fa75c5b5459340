#include "plan/plan_tables.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "base/overloaded.h"
#include "ir/local_size.h"

namespace piper {
namespace {

int add_name(Plan& plan, std::string name) {
  plan.names.push_back(std::move(name));
  return static_cast<int>(plan.names.size()) - 1;
}

void add_communication(PlanTables& tables, const TrainingDag& dag, NodeId id) {
  const Node& node = dag[id];
  Communication c;
  c.label = label_of(tables, node);
  if (const auto* transfer = std::get_if<Transfer>(&node.op)) {
    c.transfer = true;
    c.from = transfer->from.value;
    c.to = node.group.value;
  } else if (const auto* collective = std::get_if<Collective>(&node.op)) {
    c.over = collective->over.value;
  } else {
    return;
  }
  c.bytes = moved_bytes(dag, node);
  tables.communication[id.index()] = static_cast<int>(tables.plan.communications.size());
  tables.plan.communications.push_back(c);
}

/// Works of a plan, each stored once.
class WorkTable {
 public:
  WorkTable(PlanTables& tables, const TrainingDag& dag) : tables_(tables), dag_(dag) {}

  int of(const Node& node) {
    if (is_compute(node))
      return intern({node.tags.chunk.value, static_cast<int>(*node.tags.pass), samples_on(dag_, node.group)}, [&] {
        const PassWork& work = work_of(dag_, node);
        const int64_t samples = samples_on(dag_, node.group);
        return PlanWork{tables_.chunk_name[node.tags.chunk.index()],
                        node.tags.pass,
                        samples,
                        dag_.model->step.weights,
                        work.flops.at(samples),
                        work.bytes_moved.at(samples)};
      });
    if (const auto* update = std::get_if<Update>(&node.op)) {
      const UpdateWork work = update_work(dag_, node);
      return intern({update->bucket.value, -1, work.bytes}, [&] {
        return PlanWork{tables_.bucket_name[update->bucket.index()],
                        std::nullopt,
                        0,
                        dag_.model->step.weights,
                        work.flops,
                        work.bytes};
      });
    }
    return -1;
  }

 private:
  template <class Make>
  int intern(const std::tuple<int, int, int64_t>& key, Make make) {
    const auto [found, fresh] = index_.try_emplace(key, static_cast<int>(tables_.plan.works.size()));
    if (fresh) tables_.plan.works.push_back(make());
    return found->second;
  }

  PlanTables& tables_;
  const TrainingDag& dag_;
  std::map<std::tuple<int, int, int64_t>, int> index_;
};

}  // namespace

PlanLabel label_of(const PlanTables& tables, const Node& node) {
  const auto item_name = [&](Item item) {
    if (item.is_value()) return tables.value_name[item.value_id().index()];
    if (item.kind == Item::Kind::Scalars) return tables.scalars_name;
    return tables.bucket_name[item.bucket_id().index()];
  };
  const int name = std::visit(overloaded{
                                  [&](const Compute&) { return tables.chunk_name[node.tags.chunk.index()]; },
                                  [&](const Transfer& t) { return tables.value_name[t.value.index()]; },
                                  [&](const Collective& c) { return item_name(c.item); },
                                  [&](const Update& u) { return tables.bucket_name[u.bucket.index()]; },
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
  for (const Chunk& chunk : dag.model->chunks) tables.chunk_name.push_back(add_name(plan, chunk.name));
  for (const Value& value : dag.model->values) tables.value_name.push_back(add_name(plan, value.name));
  for (size_t b = 0; b < dag.buckets.size(); ++b)
    tables.bucket_name.push_back(add_name(plan, bucket_name(dag, BucketId(b))));
  tables.scalars_name = add_name(plan, "scalars");
  std::vector<char> moves(dag.streams.size(), 0);
  for (const Node& node : dag.nodes)
    if (std::holds_alternative<Transfer>(node.op)) moves[node.stream.index()] = 1;
  for (size_t s = 0; s < dag.streams.size(); ++s) {
    const auto add_stream = [&](const std::string& name) {
      plan.streams.push_back(name);
      return static_cast<int>(plan.streams.size()) - 1;
    };
    if (moves[s]) {
      tables.send_stream.push_back(add_stream(dag.streams[s] + ".send"));
      tables.receive_stream.push_back(add_stream(dag.streams[s] + ".recv"));
    } else {
      tables.send_stream.push_back(add_stream(dag.streams[s]));
      tables.receive_stream.push_back(tables.send_stream.back());
    }
  }
  tables.communication.assign(dag.nodes.size(), -1);
  for (const NodeId id : order) add_communication(tables, dag, id);
  tables.work.assign(dag.nodes.size(), -1);
  WorkTable works(tables, dag);
  for (const NodeId id : order) tables.work[id.index()] = works.of(dag[id]);
  return tables;
}

}  // namespace piper
