#include "timelines/timeline_source.h"

#include <fmt/format.h>

namespace piper {

SourceRange TimelineSource::at(int rank, int cell) const {
  if (cells.empty()) return whole;
  const CellSource& source = cells[static_cast<size_t>(rank)][static_cast<size_t>(cell)];
  return {whole.file, source.begin, source.end};
}

std::string TimelineSource::name(int rank, int cell) const {
  if (!cells.empty()) cell = cells[static_cast<size_t>(rank)][static_cast<size_t>(cell)].number;
  return fmt::format("rank {}, cell {}", rank, cell);
}

TimelineSource strip_source(const ParsedTimeline& parsed) {
  TimelineSource out(parsed.source.whole);
  if (parsed.source.cells.empty()) return out;
  for (size_t r = 0; r < parsed.actions.ranks.size(); ++r) {
    auto& row = out.cells.emplace_back();
    for (size_t c = 0; c < parsed.actions.ranks[r].size(); ++c)
      if (std::holds_alternative<TimelineCell>(parsed.actions.ranks[r][c])) row.push_back(parsed.source.cells[r][c]);
  }
  return out;
}

}  // namespace piper
