// Can a timeline with communication run, and does every message arrive?
#pragma once

#include "base/result.h"
#include "timelines/timeline_source.h"
#include "timelines/validate.h"

namespace piper {

/// Accepts what was read (E314 otherwise, naming cell, rank and reason) if its passes are valid (`validate.h`) and
///  - where a stage and the next are on different ranks, both directions are sent after the pass that computes them and
///    received before the pass that uses them, once each, on the ranks of the stages; and nothing else is sent. A
///    timeline without any send or receive is one of passes;
///  - what one stage sends to the next is received in the order in which it is sent: messages have no names;
///  - no rank waits for ever. Nothing is buffered: a message passes when its send and its receive have both been
///    reached. Sends and receives do not hold up the rank; the pass that uses a message waits for it;
///  - a stage that is unsharded anywhere on a rank is so during all of its passes there, and not twice at once;
///  - gradients are reduced once per stage, after its last backward on the rank.
Checked validate(const ParsedTimeline& parsed, const TimelineExtent& extent = {});

}  // namespace piper
