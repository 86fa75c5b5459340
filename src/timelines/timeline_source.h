// Where the cells of a timeline are written, so that errors can point at them.
#pragma once

#include <string>
#include <vector>

#include "base/source.h"
#include "timelines/actions.h"

namespace piper {

/// A cell in the text of a file, and its number in its row; idle cells and communication count too.
struct CellSource {
  int begin = 0;
  int end = 0;
  int number = 0;
};

struct TimelineSource {
  /// The file, or the directive that made the timeline.
  SourceRange whole;
  /// By rank and cell; empty if the timeline was not read from a file.
  std::vector<std::vector<CellSource>> cells;

  TimelineSource(SourceRange whole = {}) : whole(std::move(whole)) {}

  SourceRange at(int rank, int cell) const;
  /// `rank 1, cell 3`, both from 0.
  std::string name(int rank, int cell) const;
};

/// What was read: every action, and where it stands.
struct ParsedTimeline {
  ActionTimeline actions;
  TimelineSource source;
};

/// Places of what `strip` keeps.
TimelineSource strip_source(const ParsedTimeline& parsed);

}  // namespace piper
