#include "train/loop/emulated_network.h"

#include <algorithm>
#include <span>

#include "cost/traffic.h"
#include "plan/communication_kinds.h"

namespace piper {
namespace {

double transfer_seconds(const Plan& plan, const Cluster& cluster, const Communication& communication) {
  const DeviceList& from = plan.groups[communication.from];
  const DeviceList& to = plan.groups[communication.to];
  const auto fine = static_cast<int64_t>(from.size() * to.size());
  double longest = 0;
  for (size_t i = 0; i < to.size(); ++i)
    for (const TransferPiece& piece : transfer_pieces(static_cast<int>(i), to, from, fine, plan.devices_per_sample())) {
      const int level = common_level(cluster, piece.peer, to[i]);
      const int64_t bytes =
          communication.bytes * piece.samples / (static_cast<int64_t>(from.size()) * plan.devices_per_sample());
      longest = std::max(longest, alone_seconds(transfer_traffic(cluster, level, bytes)));
    }
  return longest;
}

}  // namespace

Table<CommunicationId, double> communication_seconds(const Plan& plan, const Cluster& cluster) {
  const Table<CommunicationId, OpKind> kinds = kinds_of_communications(plan);
  Table<CommunicationId, double> out;
  for (const CommunicationId c : plan.communications.ids()) {
    const Communication& communication = plan.communications[c];
    if (communication.transfer) {
      out.push_back(transfer_seconds(plan, cluster, communication));
      continue;
    }
    const PlanPartition& over = plan.partitions[communication.over];
    const std::span<const int> members(over.members);
    double longest = 0;
    for (size_t first = 0; first < members.size(); first += static_cast<size_t>(over.part_size)) {
      const Spread spread = spread_of(cluster, members.subspan(first, static_cast<size_t>(over.part_size)));
      longest = std::max(
          longest, alone_seconds(collective_traffic(cluster, collective_of(kinds[c]), spread, communication.bytes)));
    }
    out.push_back(longest);
  }
  return out;
}

}  // namespace piper
