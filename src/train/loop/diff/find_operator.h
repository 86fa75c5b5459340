// Which operator of a computation first gives something that is not finite.
#pragma once

#include <string>
#include <string_view>

#include "capture/capture.h"
#include "train/loop/diff/step_watch.h"

namespace piper {

/// Runs the computation again on what it has read. Empty: none does, or it cannot be run alone.
std::string first_not_finite(const CapturedModel& captured, std::string_view chunk, Pass pass, const Culprit& culprit);

}  // namespace piper
