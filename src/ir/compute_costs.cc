#include "ir/compute_costs.h"

#include <algorithm>

#include "base/saturate.h"
#include "ir/local_size.h"

namespace piper {

Result<double> ComputeCosts::pass(ChunkId chunk, Pass pass, const PassWork& work, GroupId group) {
  const int64_t samples = samples_on(dag_, group);
  if (costs_.measured) return measured_seconds(*costs_.measured, (*dag_.model)[chunk].name, pass, samples);
  const auto [found, fresh] = passes_.emplace(std::tuple(chunk, pass, group), 0);
  if (fresh) {
    const int last = dag_.shared[SampleAxis::Cp].size - 1;  // never has less to do than the others
    found->second = by_formula(group, local_work(dag_, chunk, work, group, last));
  }
  return found->second;
}

Result<double> ComputeCosts::update(const Node& node) {
  if (costs_.measured)
    return measured_seconds(*costs_.measured, bucket_name(dag_, std::get<Update>(node.op).bucket), std::nullopt, 0);
  return by_formula(node.group, update_work(dag_, node));
}

double ComputeCosts::transfer(GroupId from, GroupId to, int64_t bytes) {
  const int64_t sent = saturating_multiply(bytes, dag_.groups[to].size()) / dag_.groups[from].size();
  return alone_seconds(transfer_traffic(costs_.cluster, level(from, to), std::max(sent, bytes)));
}

double ComputeCosts::by_formula(GroupId group, const DeviceWork& work) {
  double slowest = 0;
  for (const DeviceKind* kind : kinds(group))
    slowest = std::max(slowest, compute_seconds(*kind, dag_.model->step.weights, work));
  return slowest;
}

/// The kinds of device in a group.
const std::vector<const DeviceKind*>& ComputeCosts::kinds(GroupId group) {
  std::vector<const DeviceKind*>& found = kinds_[group];
  if (found.empty() && costs_.cluster.nodes.size() < 2) found.push_back(&kind_of(costs_.cluster, 0));
  if (found.empty())
    for (const int device : dag_.groups[group].devices)
      if (const DeviceKind* kind = &kind_of(costs_.cluster, device);
          std::find(found.begin(), found.end(), kind) == found.end())
        found.push_back(kind);
  return found;
}

/// The outermost level over which two groups exchange slices.
int ComputeCosts::level(GroupId from, GroupId to) {
  const auto [found, fresh] = levels_.emplace(std::pair(from, to), 0);
  if (!fresh) return found->second;
  const DeviceList &senders = dag_.groups[from].devices, &receivers = dag_.groups[to].devices;
  const size_t n = senders.size(), m = receivers.size();
  for (size_t r = 0; r < m; ++r)  // receiver r wants slices r / m to (r + 1) / m of the microbatch
    for (size_t s = r * n / m; s * m < (r + 1) * n; ++s)
      found->second = std::max(found->second, common_level(costs_.cluster, senders[s], receivers[r]));
  return found->second;
}

}  // namespace piper
