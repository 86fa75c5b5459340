#include "trace/trace_index.h"

#include <algorithm>
#include <tuple>

namespace piper {

TraceIndex::TraceIndex(const std::vector<TraceEvent>& events) {
  entries_.reserve(events.size());
  for (const TraceEvent& event : events)
    entries_.push_back({event.step, event.lane, event.op, static_cast<int>(entries_.size())});
  const auto before = [](const Entry& a, const Entry& b) {
    return std::tie(a.step, a.lane, a.op, a.event) < std::tie(b.step, b.lane, b.op, b.event);
  };
  if (!std::is_sorted(entries_.begin(), entries_.end(), before)) std::sort(entries_.begin(), entries_.end(), before);
}

int TraceIndex::find(int step, int lane, int op) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), std::tie(step, lane, op),
                       [](const Entry& entry, auto key) { return std::tie(entry.step, entry.lane, entry.op) < key; });
  const bool same = found != entries_.end() && found->step == step && found->lane == lane && found->op == op;
  return same ? found->event : -1;
}

TraceIndex::Twice TraceIndex::twice() const {
  const auto found = std::adjacent_find(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.step == b.step && a.lane == b.lane && a.op == b.op;
  });
  return found == entries_.end() ? Twice{} : Twice{found->event, (found + 1)->event};
}

}  // namespace piper
