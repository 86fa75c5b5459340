#include "sim/flows.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/communication_kinds.h"

namespace piper::sim {
namespace {

/// The first port of a kind is passed by one process group of some kind. In a transfer: with a share of what a receiver
/// gets, from a device that meets it at `common`.
struct Passage {
  PortId port;
  int common = 0;
  double share = 1;
};
using Passages = Table<GroupKindId, std::vector<Passage>>;

/// Does a message between devices that meet at `common` pass the ports of `level`?
bool passes(int common, int level) {
  return common == 0 ? level == 0 : common >= level && level >= 1;
}

Traffic piece_traffic(const Cluster& cluster, int common, double share, int64_t bytes) {
  return transfer_traffic(cluster, common, static_cast<int64_t>(static_cast<double>(bytes) * share));
}

/// A device sends (receives) its pieces one after the other.
double transfer_seconds(const Cluster& cluster, const ProcessGroup& group, int64_t bytes) {
  std::map<std::pair<int, bool>, std::pair<double, double>> at_device;  // latency, busy
  for (const Piece& piece : group.pieces) {
    if (piece.level < 0) continue;
    const Traffic traffic = piece_traffic(cluster, piece.level, piece.share, bytes);
    for (const bool sends : {true, false}) {
      auto& [latency, busy] = at_device[{sends ? piece.from : piece.to, sends}];
      latency = std::max(latency, traffic.latency);
      busy += alone_seconds(traffic) - traffic.latency;
    }
  }
  double longest = 0;
  for (const auto& [device, time] : at_device) longest = std::max(longest, time.first + time.second);
  return longest;
}

class FlowFinder {
 public:
  FlowFinder(const Plan& plan, const Cluster& cluster, const Groupings& groupings, const Symmetry& symmetry)
      : plan_(plan), cluster_(cluster), groupings_(groupings), symmetry_(symmetry) {
    for (size_t level = 0; level < cluster.levels.size(); ++level)
      for (const PortKindId kind : symmetry.ports[level].first.ids())
        for (const bool outward : {true, false}) out_.ports.push_back({static_cast<int>(level), outward, kind});
    for (const GroupingId p : groupings.all.ids()) passages_.emplace_back(symmetry.groups[p].count());
    find_passages();
  }

  FlowTable find(const RowExchanges& rows) {
    const Table<CommunicationId, OpKind> kinds = kinds_of_communications(plan_);
    std::map<std::tuple<GroupingId, OpKind, int64_t, RowLoad, double>, FlowId> index;
    for (const CommunicationId c : plan_.communications.ids()) {
      const GroupingId grouping = groupings_.of_communication[c];
      const int64_t bytes = plan_.communications[c].bytes;
      const RowLoad& load = rows.loads[c];
      const auto [found, fresh] =
          index.try_emplace({grouping, kinds[c], bytes, load, rows.computing[c]}, out_.flows.size());
      out_.first.push_back(found->second);
      if (!fresh) continue;
      if (kinds[c] == OpKind::Rounds && load.further > 0)  // each way in a message of its own
        add_flows(grouping, OpKind::AllToAll, bytes, load.further, rows.computing[c]);
      else
        add_flows(grouping, kinds[c], bytes, kinds[c] == OpKind::AllToAll ? load.first : 1, 0);
    }
    return std::move(out_);
  }

 private:
  /// For the first port of every kind: all process groups that pass it.
  void find_passages() {
    PortId port{0};  // outward; the next one is its other direction
    for (size_t level = 0; level < cluster_.levels.size(); ++level) {
      const auto behind = devices_behind(plan_, cluster_, static_cast<int>(level));
      for (const int first : symmetry_.ports[level].first) {
        for (const GroupingId p : groupings_.all.ids())
          add_passages(p, static_cast<int>(level), port, behind[static_cast<size_t>(first)]);
        port = PortId(port.value + 2);
      }
    }
  }

  void add_passages(GroupingId p, int level, PortId outward, const std::vector<int>& behind) {
    const Grouping& grouping = groupings_.all[p];
    const PortId inward(outward.value + 1);
    std::vector<ProcessGroupId> met;
    for (const int d : behind)
      if (const ProcessGroupId c = grouping.of_member[static_cast<size_t>(d)]; c.valid()) met.push_back(c);
    if (grouping.transfer)
      for (const int d : behind)
        if (const ProcessGroupId c = grouping.of_receiver[static_cast<size_t>(d)]; c.valid()) met.push_back(c);
    std::sort(met.begin(), met.end());
    met.erase(std::unique(met.begin(), met.end()), met.end());
    for (const ProcessGroupId c : met) {
      auto& passages = passages_[p][symmetry_.groups[p].of[c.index()]];
      if (!grouping.transfer) {
        passages.push_back({outward, level, 1});
        passages.push_back({inward, level, 1});
        continue;
      }
      for (const Piece& piece : grouping.groups[c].pieces) {
        if (piece.level < 0 || !passes(piece.level, level)) continue;
        if (std::find(behind.begin(), behind.end(), piece.from) != behind.end())
          passages.push_back({outward, piece.level, piece.share});
        if (std::find(behind.begin(), behind.end(), piece.to) != behind.end())
          passages.push_back({inward, piece.level, piece.share});
      }
    }
  }

  /// One flow for every kind of process group of the grouping; the busiest member has `load` times the bytes.
  void add_flows(GroupingId p, OpKind kind, int64_t bytes, double load, double computing) {
    const Grouping& grouping = groupings_.all[p];
    const auto most = static_cast<int64_t>(static_cast<double>(bytes) * load);
    for (const GroupKindId k : passages_[p].ids()) {
      const ProcessGroup& group = grouping.groups[ProcessGroupId(symmetry_.groups[p].first[k])];
      Flow flow = grouping.transfer ? transfer(group, passages_[p][k], bytes)
                                    : collective(group, passages_[p][k], collective_of(kind), most);
      if (computing > 0)
        for (PortUse& use : flow.uses) use.share *= flow.seconds / (flow.seconds + computing);
      flow.seconds += computing;
      out_.flows.push_back(std::move(flow));
    }
  }

  Flow collective(const ProcessGroup& group, const std::vector<Passage>& passages, CollectiveKind kind,
                  int64_t bytes) const {
    const Traffic traffic = collective_traffic(cluster_, kind, group.spread, bytes);
    Flow flow;
    flow.seconds = alone_seconds(traffic);
    for (const Passage& passage : passages) {
      const auto level = static_cast<size_t>(out_.ports[passage.port].level);
      add_use(flow, passage.port, traffic.seconds[level], traffic.bytes[level]);
    }
    return flow;
  }

  Flow transfer(const ProcessGroup& group, const std::vector<Passage>& passages, int64_t bytes) const {
    Flow flow;
    flow.seconds = transfer_seconds(cluster_, group, bytes);
    for (const Passage& passage : passages) {
      const auto level = static_cast<size_t>(out_.ports[passage.port].level);
      const Traffic traffic = piece_traffic(cluster_, passage.common, passage.share, bytes);
      add_use(flow, passage.port, traffic.seconds[level], traffic.bytes[level]);
    }
    return flow;
  }

  static void add_use(Flow& flow, PortId port, double seconds, double bytes) {
    if (seconds <= 0) return;
    const auto found =
        std::find_if(flow.uses.begin(), flow.uses.end(), [&](const PortUse& use) { return use.port == port; });
    PortUse& use = found != flow.uses.end() ? *found : flow.uses.emplace_back(PortUse{port, 0, 0});
    use.share += seconds / flow.seconds;
    use.bytes += bytes;
  }

  const Plan& plan_;
  const Cluster& cluster_;
  const Groupings& groupings_;
  const Symmetry& symmetry_;
  Table<GroupingId, Passages> passages_;
  FlowTable out_;
};

}  // namespace

double flow_seconds(const Cluster& cluster, const ProcessGroup& group, OpKind kind, int64_t bytes) {
  if (kind == OpKind::Send || kind == OpKind::Recv) return transfer_seconds(cluster, group, bytes);
  return alone_seconds(collective_traffic(cluster, collective_of(kind), group.spread, bytes));
}

FlowTable find_flows(const Plan& plan, const Cluster& cluster, const Groupings& groupings, const Symmetry& symmetry,
                     const RowExchanges& rows) {
  return FlowFinder(plan, cluster, groupings, symmetry).find(rows);
}

}  // namespace piper::sim
