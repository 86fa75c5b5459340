// One or two steps on a card: the schedule, the numbers that people compare, the pipeline.
#pragma once

#include <string>
#include <vector>

#include "trace/trace.h"

namespace piper {

/// Two traces, before and after, stand below each other with one scale of time; the second says how it differs.
std::string card_svg(const std::vector<Trace>& traces, int width);

}  // namespace piper
