// A timeline as a schedule: stages placed as the timeline has them, and one order per rank.
#pragma once

#include "base/result.h"
#include "schedule/schedule.h"
#include "timelines/timeline.h"

namespace piper {

/// One order per rank: cell `2I3` is {STAGE=2, MICROBATCH=3, pass=BI}, with the tags that these names stand for.
std::vector<Order> orders_of(const Timeline& timeline, const std::string& stage, const std::string& microbatch);

/// The stages of a valid timeline on the axis `pp`: in a loop, a V or both ways where they stand so, else one by one.
/// E313 for two directions that are not halves of the microbatches.
Result<Place> place_of(const Timeline& timeline, const SourceRange& where);

/// In the language: a mesh, microbatches and stages along it.
Result<Schedule> pipeline_of(const Timeline& timeline, const SourceRange& where);
/// The same with the orders written out.
Result<Schedule> as_schedule(const Timeline& timeline, const SourceRange& where);

/// In the words of the original Piper's JSON: scope `PP` is the stage, dim `MB` the microbatch, devices are ranks.
Schedule as_original_schedule(const Timeline& timeline);

}  // namespace piper
