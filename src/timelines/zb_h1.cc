// ZB-H1: 1F1B with backward split in two, W postponed to fill the bubble at the memory of 1F1B.
//   rank 1 of 2, 2 microbatches:  1F0 1I0 1F1 1I1 1W0 1W1
// Line, any size. m >= p and w <= f: (p-1)(f+i-w) from a rank's first to its last pass; keeps p activations until W.
#include "timelines/generator.h"
#include "timelines/interleave.h"

namespace piper::timelines {

Generator zb_h1() {
  return {{.name = "zb-h1",
           .title = "ZB-H1",
           .paper = "Qi et al. 2023, arXiv:2401.10241",
           .placement = StagePlacement::Line,
           .sizes = "any",
           .bubble = "(p-1)(f+i-w) for m >= p, w <= f",
           .memory = "min(m, p)"},
          any_size,
          [](const TimelineRequest& request) { return interleaved(request, Backward::Split); }};
}

}  // namespace piper::timelines
