#include "sim/bare_timeline.h"

#include <algorithm>

namespace piper {
namespace {

enum class KeptUntil { W, I };

/// In a pair F counts before B releases.
int peak(const std::vector<TimelineCell>& row, KeptUntil until) {
  int kept = 0, highest = 0;
  const auto change = [&](const TimelineOp& op) {
    if (op.pass == Pass::F) return 1;
    if (op.pass == Pass::B) return -1;
    return op.pass == (until == KeptUntil::W ? Pass::BW : Pass::BI) ? -1 : 0;
  };
  for (const TimelineCell& cell : row) {
    std::vector<int> changes = {change(cell.first)};
    if (cell.second) changes.push_back(change(*cell.second));
    std::sort(changes.rbegin(), changes.rend());
    for (const int c : changes) {
      kept += c;
      highest = std::max(highest, kept);
    }
  }
  return highest;
}

}  // namespace

TimelineReport timeline_report(const Timeline& timeline, const TimelineCosts& costs, std::optional<double> overlap) {
  TimelineReport report;
  const auto times = run_clock(timeline, costs, overlap);
  for (const auto& row : times)
    if (!row.empty()) report.makespan = std::max(report.makespan, row.back().end);
  for (size_t r = 0; r < times.size(); ++r) {
    double busy = 0;
    for (const CellTime& cell : times[r]) busy += cell.end - cell.start;
    const double span = times[r].empty() ? 0 : times[r].back().end - times[r].front().start;
    report.busy.push_back(busy);
    report.bubble.push_back(report.makespan - busy);
    report.span.push_back(span);
    report.span_bubble.push_back(span - busy);
    report.peak_until_w.push_back(peak(timeline.ranks[r], KeptUntil::W));
    report.peak_until_i.push_back(peak(timeline.ranks[r], KeptUntil::I));
  }
  return report;
}

}  // namespace piper
