// node_seconds: how long every node takes alone. What groups and partitions have in common is looked up once, so that
// many devices cost little.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/overloaded.h"
#include "base/saturate.h"
#include "cost/traffic.h"
#include "ir/local_size.h"
#include "passes/passes.h"

namespace piper {
namespace {

class NodeCosts {
 public:
  NodeCosts(const TrainingDag& dag, const Cluster& cluster, const CostTable* table)
      : dag_(dag),
        cluster_(cluster),
        table_(table),
        kinds_(dag.groups.group_count()),
        spreads_(dag.groups.partition_count()) {}

  Result<double> of(const Node& node) {
    return std::visit(overloaded{
                          [&](const Compute&) { return compute(node); },
                          [&](const Update& u) { return update(node, u); },
                          [&](const Transfer& t) { return Result<double>(transfer(node, t)); },
                          [&](const Collective& c) { return Result<double>(collective(node, c)); },
                      },
                      node.op);
  }

 private:
  Result<double> compute(const Node& node) {
    const int64_t samples = samples_on(dag_, node.group);
    if (table_) return measured(node, (*dag_.model)[node.tags.chunk].name, node.tags.pass, samples);
    const PassWork& work = work_of(dag_, node);
    return by_formula(node.group, dag_.model->step.weights, work.flops.at(samples), work.bytes_moved.at(samples));
  }

  Result<double> update(const Node& node, const Update& update) {
    const Bucket& bucket = dag_[update.bucket];
    if (table_) return measured(node, bucket_name(dag_, update.bucket), std::nullopt, 0);
    const UpdateWork work = update_work(dag_, bucket, shard_elements(dag_, bucket, holder_on(bucket, node.group)));
    return by_formula(node.group, work.dtype, work.flops, work.bytes_moved);
  }

  Result<double> measured(const Node& node, const std::string& chunk, std::optional<Pass> pass, int64_t samples) const {
    if (const auto seconds = find(*table_, chunk, pass, samples)) return *seconds;
    const std::string what =
        pass ? fmt::format("{} of {} on {} sample{}", name(*pass), chunk, samples, samples == 1 ? "" : "s")
             : fmt::format("the update of {}", chunk);
    return error(ErrorCode::E411, table_->where, fmt::format("the cost table has no cost of {}", what))
        .note(dag_.where(node.placed_by), "placed here")
        .help("measure again with this model, batch and schedule, or leave out --costs to use formulas");
  }

  double by_formula(GroupId group, DType dtype, int64_t flops, int64_t bytes) {
    double slowest = 0;
    for (const DeviceKind* kind : kinds(group))
      slowest = std::max(slowest, compute_seconds(*kind, dtype, flops, bytes));
    return slowest;
  }

  /// The kinds of device in a group.
  const std::vector<const DeviceKind*>& kinds(GroupId group) {
    std::vector<const DeviceKind*>& found = kinds_[group.index()];
    if (found.empty() && cluster_.nodes.size() < 2) found.push_back(&kind_of(cluster_, 0));
    if (found.empty())
      for (const int device : dag_.groups[group].devices)
        if (const DeviceKind* kind = &kind_of(cluster_, device);
            std::find(found.begin(), found.end(), kind) == found.end())
          found.push_back(kind);
    return found;
  }

  double transfer(const Node& node, const Transfer& transfer) {
    const auto senders = dag_.groups[transfer.from].size(), receivers = dag_.groups[node.group].size();
    const int64_t received = moved_bytes(dag_, node);
    const int64_t sent = saturating_multiply(received, receivers) / senders;
    return alone_seconds(transfer_traffic(cluster_, meeting(transfer.from, node.group), std::max(sent, received)));
  }

  /// The outermost level over which two groups exchange slices.
  int meeting(GroupId from, GroupId to) {
    const auto [found, fresh] = meetings_.emplace(std::pair(from, to), 0);
    if (!fresh) return found->second;
    const DeviceList &senders = dag_.groups[from].devices, &receivers = dag_.groups[to].devices;
    const size_t n = senders.size(), m = receivers.size();
    for (size_t r = 0; r < m; ++r)  // receiver r wants slices r / m to (r + 1) / m of the microbatch
      for (size_t s = r * n / m; s * m < (r + 1) * n; ++s)
        found->second = std::max(found->second, meeting_level(cluster_, senders[s], receivers[r]));
    return found->second;
  }

  double collective(const Node& node, const Collective& collective) {
    const int64_t bytes = moved_bytes(dag_, node);
    const auto [found, fresh] = collectives_.emplace(std::tuple(collective.over, collective.kind, bytes), 0.0);
    if (fresh)
      for (const Spread& spread : spreads(collective.over))
        found->second =
            std::max(found->second, alone_seconds(collective_traffic(cluster_, collective.kind, spread, bytes)));
    return found->second;
  }

  /// The different ways in which the parts of a partition lie over the cluster: few.
  const std::vector<Spread>& spreads(PartitionId over) {
    std::vector<Spread>& found = spreads_[over.index()];
    if (!found.empty()) return found;
    const Partition& partition = dag_.groups[over];
    const auto size = static_cast<size_t>(partition.part_size);
    for (size_t first = 0; first < partition.members.size(); first += size) {
      const Spread spread = spread_of(cluster_, std::span(partition.members).subspan(first, size));
      if (std::find(found.begin(), found.end(), spread) == found.end()) found.push_back(spread);
    }
    return found;
  }

  const TrainingDag& dag_;
  const Cluster& cluster_;
  const CostTable* table_;
  std::vector<std::vector<const DeviceKind*>> kinds_;  // by GroupId
  std::vector<std::vector<Spread>> spreads_;           // by PartitionId
  std::map<std::pair<GroupId, GroupId>, int> meetings_;
  std::map<std::tuple<PartitionId, CollectiveKind, int64_t>, double> collectives_;
};

}  // namespace

Result<std::vector<double>> node_seconds(const TrainingDag& dag, const Cluster& cluster, const CostTable* costs) {
  NodeCosts of(dag, cluster, costs);
  std::vector<double> out;
  out.reserve(dag.nodes.size());
  for (const Node& node : dag.nodes) {
    PIPER_TRY(const double seconds, of.of(node));
    out.push_back(seconds);
  }
  return out;
}

}  // namespace piper
