// A schedule as a static picture for papers and slides.
#pragma once

#include <string>

#include "trace/trace.h"

namespace piper {

/// A row for every lane with what it computes in the first step: blocks coloured by pass, with the number of the slice.
/// Neighbours of one pass and slice are one block.
std::string schedule_svg(const Trace& trace);

}  // namespace piper
