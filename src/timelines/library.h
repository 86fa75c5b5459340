// The library of published pipeline timelines: a name and sizes in, the order of passes on every rank out.
//
//   make_timeline("zb-h1", {.ranks = 4, .microbatches = 8}, where)
//
// `validate.h` checks any timeline, `csv.h` reads and writes the field's exchange format.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "schedule/schedule.h"
#include "timelines/timeline.h"

namespace piper {

/// Which rank runs which stage. With p ranks and chunk c of rank r:
enum class StagePlacement {
  Line,    // one chunk: stage r
  Loop,    // chunk c is stage c * p + r
  V,       // two chunks: stage r and stage 2p - 1 - r
  W,       // a V that goes on: chunk c is stage c * p + r if c is even, else c * p + p - 1 - r
  TwoWay,  // two copies of p stages: stage r for microbatches of direction 0, stage p - 1 - r for direction 1
};
std::string_view name(StagePlacement placement);
std::optional<StagePlacement> placement_named(std::string_view text);

/// How many stages the model is cut into.
int stage_count(StagePlacement placement, int ranks, int stages_per_rank);
/// The rank that runs a stage. `direction` (0 or 1) matters for TwoWay only.
int rank_of(StagePlacement placement, int stage, int ranks, int direction = 0);
/// The stage that is chunk `chunk` of a rank. For TwoWay the chunk is the direction.
int stage_of(StagePlacement placement, int rank, int chunk, int ranks);
/// TwoWay: the first half of the microbatches goes in direction 0, the second in direction 1. Otherwise 0.
int direction_of(StagePlacement placement, int microbatch, int microbatches);

/// Time of the passes of one stage; any unit.
struct StageCosts {
  double F = 1;
  double I = 1;
  double W = 1;
  friend bool operator==(const StageCosts&, const StageCosts&) = default;
};

/// Time of one pass of one stage, and of one transfer between ranks; any unit.
struct TimelineCosts {
  double F = 1;
  double I = 1;
  double W = 1;
  double comm = 0;
  /// Stages that differ: one entry for every stage, instead of F, I and W above. Empty: all are alike.
  std::vector<StageCosts> stages = {};

  StageCosts at(int stage) const { return stages.empty() ? StageCosts{F, I, W} : stages[stage]; }
};

/// Activations of one stage and microbatch, any unit: F keeps them, I frees one part, W the rest.
struct TimelineMemory {
  double kept_by_F = 2;
  double freed_by_I = 1;
};

/// What is asked for. An option that the timeline does not have is refused, except costs: rules do not need them.
struct TimelineRequest {
  int ranks = 1;
  int microbatches = 1;
  /// 0: the default of the timeline.
  int stages_per_rank = 0;
  /// Microbatches per group of an interleaved timeline. Absent: groups of ranks or slightly more, as equal as possible.
  std::optional<int> group = {};
  /// Most activations a rank may keep, in units of one forward. Absent: the published limit.
  std::optional<double> memory_limit = {};
  /// Absent: all passes cost 1 and transfers nothing; zb-v then follows its rule instead of its heuristic.
  std::optional<TimelineCosts> costs = {};
  /// Absent: I and W free half of the activations each; for list W frees them all.
  std::optional<TimelineMemory> memory = {};
  /// Only for list; absent: the usual one for so many stages per rank.
  std::optional<StagePlacement> placement = {};
  /// Whole: only for list.
  Backward backward = Backward::Split;
};

/// One row of the table of timelines. p ranks, m microbatches, v stages per rank, r the rank; f, i, w, b per stage.
struct TimelineInfo {
  std::string name;   // as on the command line: zb-h1
  std::string title;  // ZB-H1
  std::string paper;
  StagePlacement placement = StagePlacement::Line;
  int default_stages_per_rank = 1;
  /// Sizes it is defined for, idle time per rank, and most activations kept on a rank, as text.
  std::string sizes;
  std::string bubble;
  std::string memory;
  bool takes_stages_per_rank = false;
  bool takes_group = false;
  bool takes_memory = false;     // memory_limit and memory
  bool takes_placement = false;  // placement and backward
  bool uses_costs = false;       // the order depends on them
};

/// Where the stages of this request stand, and how many there are on every rank.
StagePlacement placement_of(const TimelineInfo& info, const TimelineRequest& request);
int stages_per_rank(const TimelineInfo& info, const TimelineRequest& request);

/// All timelines, in the order of the table.
const std::vector<TimelineInfo>& timeline_library();

/// The timeline of this name, `_` and `-` alike; nothing if unknown.
const TimelineInfo* find_timeline(std::string_view name);

/// The order of passes on every rank. E315: unknown name. E314: sizes or options it is not defined for. E113: too
/// large.
Result<Timeline> make_timeline(std::string_view name, const TimelineRequest& request, const SourceRange& where);

}  // namespace piper
