// A schedule as a static picture for papers and slides.
#pragma once

#include <optional>
#include <string>

#include "trace/trace.h"

namespace piper {

/// What the axis shows: seconds, or the units of a timeline's costs.
enum class PictureTime { Seconds, Units };

struct PictureOptions {
  std::optional<int> width;  // pixels; absent: wide enough for the numbers on nearly all blocks
  PictureTime time = PictureTime::Seconds;
};

/// A row for every lane with what it computes in the first step: blocks coloured by pass, with the number of the slice.
/// A pass of a slice is one block, whatever it waited for inside; a forward and a backward that run interleaved are two
/// blocks of half the height.
std::string schedule_svg(const Trace& trace, const PictureOptions& options = {});

/// SVG elements that stand in a box from 0, 0 down.
struct SvgPart {
  std::string text;
  double height = 0;
};

/// The same picture as a part of a larger one; all of the width stands for `seconds`.
SvgPart schedule_part(const Trace& trace, double width, double seconds, PictureTime time);

/// A file of one part, on white.
std::string whole_svg(const SvgPart& part, double width);

}  // namespace piper
