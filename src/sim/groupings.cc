#include "sim/groupings.h"

#include <map>
#include <numeric>
#include <tuple>

namespace piper::sim {
namespace {

Grouping collective_place(const PlanPartition& partition, const Cluster& cluster, size_t devices) {
  Grouping grouping;
  grouping.of_member.resize(devices);
  const auto size = static_cast<size_t>(partition.part_size);
  for (size_t first = 0; first + size <= partition.members.size(); first += size) {
    ProcessGroup group;
    const auto begin = partition.members.begin() + static_cast<long>(first);
    group.members.assign(begin, begin + partition.part_size);
    group.spread = spread_of(cluster, group.members);
    const ProcessGroupId id(grouping.groups.size());
    for (const int device : group.members) grouping.of_member[static_cast<size_t>(device)] = id;
    grouping.groups.push_back(std::move(group));
  }
  return grouping;
}

/// Both groups cut the same samples evenly, so process groups end where cuts of both coincide. Devices that share
/// samples are in process groups of their own, with those of the other group that stand at the same grouping.
Grouping transfer_place(const DeviceList& from, const DeviceList& to, int64_t tp, const Cluster& cluster,
                        size_t devices) {
  Grouping grouping;
  grouping.transfer = true;
  grouping.of_member.resize(devices);
  grouping.of_receiver.resize(devices);
  const auto senders = static_cast<int64_t>(from.size()) / tp, receivers = static_cast<int64_t>(to.size()) / tp;
  const int64_t samples = senders * receivers, span = std::lcm(senders, receivers);
  grouping.groups.resize(static_cast<size_t>(samples / span * tp));
  const auto group_of = [&](int64_t position, int64_t others) {
    return ProcessGroupId(static_cast<size_t>(position / tp * others / span * tp + position % tp));
  };
  for (int64_t i = 0; i < senders * tp; ++i) {
    const ProcessGroupId group = group_of(i, receivers);
    const int device = from[static_cast<size_t>(i)];
    grouping.groups[group].members.push_back(device);
    grouping.of_member[static_cast<size_t>(device)] = group;
    for (const TransferPiece& piece : transfer_pieces(static_cast<int>(i), from, to, samples, static_cast<int>(tp))) {
      const int level = piece.peer == device ? -1 : common_level(cluster, device, piece.peer);
      grouping.groups[group].pieces.push_back(
          {device, piece.peer, level, static_cast<double>(piece.samples) / static_cast<double>(senders)});
    }
  }
  for (int64_t i = 0; i < receivers * tp; ++i) {
    const ProcessGroupId group = group_of(i, senders);
    grouping.groups[group].receivers.push_back(to[static_cast<size_t>(i)]);
    grouping.of_receiver[static_cast<size_t>(to[static_cast<size_t>(i)])] = group;
  }
  return grouping;
}

}  // namespace

Groupings find_groupings(const Plan& plan, const Cluster& cluster) {
  Groupings groupings;
  const auto devices = static_cast<size_t>(device_count(plan));
  std::map<std::tuple<GroupId, GroupId, PartitionId>, GroupingId> index;
  for (const Communication& c : plan.communications) {
    const auto [found, fresh] = index.try_emplace({c.from, c.to, c.over}, groupings.all.size());
    if (fresh)
      groupings.all.push_back(c.transfer ? transfer_place(plan.groups[c.from], plan.groups[c.to],
                                                          plan.devices_per_sample(), cluster, devices)
                                         : collective_place(plan.partitions[c.over], cluster, devices));
    groupings.of_communication.push_back(found->second);
  }
  return groupings;
}

}  // namespace piper::sim
