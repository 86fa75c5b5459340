// The per-rank order of passes in the field's common notation: `0F0 0F1 (1F0;0B0) 2I3 2W3` = stage, pass, microbatch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/model_graph.h"

namespace piper {

/// One pass of one stage on one microbatch. Pass::BI is written I, Pass::BW is written W.
struct TimelineOp {
  int stage = 0;
  Pass pass = Pass::F;
  int microbatch = 0;
  friend auto operator<=>(const TimelineOp&, const TimelineOp&) = default;
};

/// What a rank does next: one operation, or two that may run interleaved.
struct TimelineCell {
  TimelineOp first;
  std::optional<TimelineOp> second;
  friend bool operator==(const TimelineCell&, const TimelineCell&) = default;
};

struct Timeline {
  std::vector<std::vector<TimelineCell>> ranks;
  friend bool operator==(const Timeline&, const Timeline&) = default;
};

std::string print(const TimelineOp& op);      // 2I3
std::string print(const TimelineCell& cell);  // (0F5;1B2)

}  // namespace piper
