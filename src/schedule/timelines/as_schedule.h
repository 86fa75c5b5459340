// A timeline as a schedule: stages placed one by one, and one order per rank.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timelines/library.h"

namespace piper {

/// The word of the language for a placement.
StageShape shape_of(Placement placement);

/// One order per rank: cell `2I3` is {STAGE=2, MICROBATCH=3, pass=BI}, with the tags that these names stand for.
std::vector<Order> orders_of(const Timeline& timeline, const std::string& stage, const std::string& microbatch);

/// In the language: a mesh, microbatches, stages along it, and the orders written out.
Schedule as_schedule(const Timeline& timeline, Placement placement, int stages, int microbatches);

/// In the words of the original Piper's JSON: scope `PP` is the stage, dim `MB` the microbatch, devices are ranks.
Schedule as_original_schedule(const Timeline& timeline, Placement placement, int stages, int microbatches);

}  // namespace piper
