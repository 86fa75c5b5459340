#include "sim/shared_links.h"

#include <algorithm>

namespace piper::sim {

SharedLinks::SharedLinks(size_t ports, size_t ids)
    : ports_(ports), flow_(ids, nullptr), speed_(ids, 1), visited_(ids, 0) {}

void SharedLinks::add(int id, const Flow& flow) {
  changed_.clear();
  flow_[static_cast<size_t>(id)] = &flow;
  speed_[static_cast<size_t>(id)] = 1;
  bool contended = false;
  for (const PortUse& use : flow.uses) {
    PortState& port = ports_[static_cast<size_t>(use.port)];
    port.active.push_back(id);
    port.wanted += use.share;
    contended |= overloaded(port);
  }
  if (contended) share(flow);
}

void SharedLinks::remove(int id) {
  changed_.clear();
  const Flow& flow = *flow_[static_cast<size_t>(id)];
  flow_[static_cast<size_t>(id)] = nullptr;
  bool contended = false;
  for (const PortUse& use : flow.uses) {
    PortState& port = ports_[static_cast<size_t>(use.port)];
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
  const auto visit = [&](int p) {
    PortState& port = ports_[static_cast<size_t>(p)];
    if (port.round == round_) return;
    port.round = round_;
    port.left = 1;
    port.open = 0;
    port.waiting = 0;
    busy_.push_back(p);
  };
  for (const PortUse& use : around.uses) visit(use.port);
  for (size_t next = 0; next < busy_.size(); ++next)
    for (const int id : ports_[static_cast<size_t>(busy_[next])].active) {
      if (visited_[static_cast<size_t>(id)] == round_) continue;
      visited_[static_cast<size_t>(id)] = round_;
      members_.push_back(id);
      for (const PortUse& use : flow_[static_cast<size_t>(id)]->uses)
        if (overloaded(ports_[static_cast<size_t>(use.port)])) visit(use.port);
    }
  for (const int id : members_)
    for (const PortUse& use : flow_[static_cast<size_t>(id)]->uses) {
      ports_[static_cast<size_t>(use.port)].open += use.share;
      ++ports_[static_cast<size_t>(use.port)].waiting;
    }

  // all speeds grow together; the port that is full first stops its flows
  while (!members_.empty()) {
    double least = 1;
    for (const int p : busy_) {
      const PortState& port = ports_[static_cast<size_t>(p)];
      if (port.waiting > 0) least = std::min(least, port.left / port.open);
    }
    const auto stops = [&](int id) {
      if (least >= 1) return true;
      for (const PortUse& use : flow_[static_cast<size_t>(id)]->uses) {
        const PortState& port = ports_[static_cast<size_t>(use.port)];
        if (port.round == round_ && port.left / port.open <= least * (1 + 1e-12)) return true;
      }
      return false;
    };
    const auto rest = std::stable_partition(members_.begin(), members_.end(), [&](int id) { return !stops(id); });
    for (auto stopped = rest; stopped != members_.end(); ++stopped) {
      for (const PortUse& use : flow_[static_cast<size_t>(*stopped)]->uses) {
        PortState& port = ports_[static_cast<size_t>(use.port)];
        if (port.round != round_) continue;
        port.left -= use.share * least;
        port.open -= use.share;
        --port.waiting;
      }
      if (speed_[static_cast<size_t>(*stopped)] != least) {
        speed_[static_cast<size_t>(*stopped)] = least;
        changed_.push_back(*stopped);
      }
    }
    members_.erase(rest, members_.end());
  }
}

}  // namespace piper::sim
