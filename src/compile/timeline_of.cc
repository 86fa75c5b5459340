#include "compile/timeline_of.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "ir/device_classes.h"
#include "timelines/clock.h"

namespace piper {
namespace {

std::vector<int> stage_of_chunk(const TrainingDag& dag) {
  if (!dag.stages.empty()) return dag.stages[0].of_chunk;
  std::vector<int> out;
  std::vector<GroupId> seen;
  for (const auto& residences : dag.residences) {
    const GroupId group = residences[0].group;
    auto found = std::find(seen.begin(), seen.end(), group);
    if (found == seen.end()) found = seen.insert(seen.end(), group);
    out.push_back(static_cast<int>(found - seen.begin()));
  }
  return out;
}

/// Appends an operation: to the cell it belongs to, or as a new one.
class RowWriter {
 public:
  explicit RowWriter(TimedRow& row) : row_(row) {}

  void add(const TimelineOp& op, int bracket, int part, double start, double end) {
    if (bracket >= 0 && bracket == bracket_) {
      TimedCell& cell = row_.cells.back();
      if (cell.cell.first != op && !cell.cell.second) {
        cell.cell.second = op;
        if (part < first_part_) std::swap(cell.cell.first, *cell.cell.second);  // as the user wrote them
      }
      cell.end = std::max(cell.end, end);
      return;
    }
    first_part_ = part;
    if (bracket < 0 && bracket_ < 0 && !row_.cells.empty() && row_.cells.back().cell.first == op) {
      row_.cells.back().end = end;
      return;
    }
    row_.cells.push_back({{op, std::nullopt}, start, end});
    bracket_ = bracket;
  }

 private:
  TimedRow& row_;
  int bracket_ = -1, first_part_ = 0;
};

}  // namespace

std::vector<TimedRow> timed_rows(const LinearDag& linear) {
  const TrainingDag& dag = linear.dag;
  const DeviceClasses classes = device_classes(dag);
  const std::vector<int> stages = stage_of_chunk(dag);
  const ComputeIndex index(dag);
  std::unordered_map<NodeId, std::pair<int, int>> bracket_of;  // bracket and part
  for (size_t b = 0; b < dag.brackets.size(); ++b)
    for (size_t p = 0; p < dag.brackets[b].parts.size(); ++p)
      for (const NodeId id : dag.brackets[b].parts[p]) bracket_of[id] = {static_cast<int>(b), static_cast<int>(p)};
  std::vector<TimedRow> rows(classes.count());
  std::vector<RowWriter> writers;
  for (size_t c = 0; c < rows.size(); ++c) {
    rows[c].devices = classes.members(static_cast<int>(c));
    writers.emplace_back(rows[c]);
  }
  for (const NodeId id : linear.order) {
    const Node& node = dag[id];
    if (!is_compute(node)) continue;
    // recomputation is part of the backward it is for
    const bool split = index.find(node.tags.chunk, Pass::BI, node.tags.slice).valid();
    const Pass pass = *node.tags.pass != Pass::R ? *node.tags.pass : split ? Pass::BI : Pass::B;
    const TimelineOp op{stages[node.tags.chunk.index()], pass, node.tags.slice};
    const auto found = bracket_of.find(id);
    const auto [bracket, part] = found == bracket_of.end() ? std::pair(-1, 0) : found->second;
    for (const int c : classes.of_group(node.group))
      writers[static_cast<size_t>(c)].add(op, bracket, part, linear.start[id.index()], linear.end[id.index()]);
  }
  return rows;
}

std::vector<TimedRow> timed_rows(const Timeline& timeline, const TimelineCosts& costs) {
  const auto times = run_clock(timeline, costs);
  std::vector<TimedRow> rows;
  for (size_t r = 0; r < times.size(); ++r) {
    TimedRow row{{static_cast<int>(r)}, {}};
    for (size_t c = 0; c < times[r].size(); ++c)
      row.cells.push_back({timeline.ranks[r][c], times[r][c].start, times[r][c].end});
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string print_timeline(const std::vector<TimedRow>& rows) {
  std::string out;
  for (const TimedRow& row : rows) {
    std::string line;
    for (const TimedCell& cell : row.cells) line += (line.empty() ? "" : " ") + print(cell.cell);
    out += line + "\n";
  }
  return out;
}

}  // namespace piper
