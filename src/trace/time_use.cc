#include "trace/time_use.h"

#include <algorithm>

namespace piper {
namespace {

struct Interval {
  double start, end;
};

/// Sorted and without overlap.
std::vector<Interval> united(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
  std::vector<Interval> out;
  for (const Interval& next : all) {
    if (!out.empty() && next.start <= out.back().end)
      out.back().end = std::max(out.back().end, next.end);
    else
      out.push_back(next);
  }
  return out;
}

double length(const std::vector<Interval>& intervals) {
  double sum = 0;
  for (const Interval& i : intervals) sum += i.end - i.start;
  return sum;
}

double common(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double sum = 0;
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[k].end) - std::max(a[i].start, b[k].start));
    a[i].end < b[k].end ? ++i : ++k;
  }
  return sum;
}

}  // namespace

TimeUse time_use(const std::vector<Activity>& activities, size_t streams, double seconds) {
  TimeUse use;
  use.busy.assign(streams, 0);
  std::vector<Interval> computing, communicating;
  for (const Activity& activity : activities) {
    use.busy[static_cast<size_t>(activity.stream)] += activity.end - activity.start;
    (activity.communication ? communicating : computing).push_back({activity.start, activity.end});
  }
  computing = united(std::move(computing));
  communicating = united(std::move(communicating));
  use.compute = length(computing);
  use.communication = length(communicating);
  use.exposed = use.communication - common(computing, communicating);
  use.idle = seconds - use.compute - use.exposed;
  return use;
}

}  // namespace piper
