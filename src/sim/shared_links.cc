#include "sim/shared_links.h"

#include <algorithm>

namespace piper::sim {

SharedLinks::SharedLinks(size_t ports, size_t instances)
    : ports_(ports), flow_(instances, nullptr), speed_(instances, 1), visited_(instances, 0) {}

void SharedLinks::add(InstanceId id, const Flow& flow) {
  changed_.clear();
  flow_[id] = &flow;
  speed_[id] = 1;
  bool contended = false;
  for (const PortUse& use : flow.uses) {
    PortState& port = ports_[use.port];
    port.active.push_back(id);
    port.wanted += use.share;
    contended |= overloaded(port);
  }
  if (contended) share(flow);
}

void SharedLinks::remove(InstanceId id) {
  changed_.clear();
  const Flow& flow = *flow_[id];
  flow_[id] = nullptr;
  bool contended = false;
  for (const PortUse& use : flow.uses) {
    PortState& port = ports_[use.port];
    contended |= overloaded(port);
    port.active.erase(std::find(port.active.begin(), port.active.end(), id));
    port.wanted = port.active.empty() ? 0 : port.wanted - use.share;  // no rounding is left behind on an idle port
  }
  if (contended) share(flow);
}

void SharedLinks::share(const Flow& around) {
  ++round_;
  members_.clear();
  busy_.clear();
  const auto visit = [&](PortId p) {
    PortState& port = ports_[p];
    if (port.round == round_) return;
    port.round = round_;
    port.left = 1;
    port.open = 0;
    port.waiting = 0;
    busy_.push_back(p);
  };
  for (const PortUse& use : around.uses) visit(use.port);
  for (size_t next = 0; next < busy_.size(); ++next)
    for (const InstanceId id : ports_[busy_[next]].active) {
      if (visited_[id] == round_) continue;
      visited_[id] = round_;
      members_.push_back(id);
      for (const PortUse& use : flow_[id]->uses)
        if (overloaded(ports_[use.port])) visit(use.port);
    }
  for (const InstanceId id : members_)
    for (const PortUse& use : flow_[id]->uses) {
      ports_[use.port].open += use.share;
      ++ports_[use.port].waiting;
    }

  // all speeds grow together; the port that is full first stops its flows
  while (!members_.empty()) {
    double least = 1;
    for (const PortId p : busy_) {
      const PortState& port = ports_[p];
      if (port.waiting > 0) least = std::min(least, port.left / port.open);
    }
    const auto stops = [&](InstanceId id) {
      if (least >= 1) return true;
      for (const PortUse& use : flow_[id]->uses) {
        const PortState& port = ports_[use.port];
        if (port.round == round_ && port.left / port.open <= least * (1 + 1e-12)) return true;
      }
      return false;
    };
    const auto rest =
        std::stable_partition(members_.begin(), members_.end(), [&](InstanceId id) { return !stops(id); });
    for (auto stopped = rest; stopped != members_.end(); ++stopped) {
      for (const PortUse& use : flow_[*stopped]->uses) {
        PortState& port = ports_[use.port];
        if (port.round != round_) continue;
        port.left -= use.share * least;
        port.open -= use.share;
        --port.waiting;
      }
      if (speed_[*stopped] != least) {
        speed_[*stopped] = least;
        changed_.push_back(*stopped);
      }
    }
    members_.erase(rest, members_.end());
  }
}

}  // namespace piper::sim
