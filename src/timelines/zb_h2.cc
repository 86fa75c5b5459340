// ZB-H2: no bubble between a rank's first and last pass at equal costs, for about twice the memory of 1F1B.
//   rank 0 of 2, 3 microbatches:  0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2
// Line, any size. The published order is that of zb_heuristic.h at unit costs with room for 2p-1 forwards until W.
// m >= 2p-1, w <= f and 2w <= f+i: (p-1)(f+i-2w) from a rank's first to its last pass; keeps 2p-1 activations until W.
#include "timelines/generator.h"
#include "timelines/zb_heuristic.h"

namespace piper::timelines {
namespace {

Timeline generate_zb_h2(const TimelineRequest& request) {
  return zero_bubble_heuristic({.ranks = request.ranks,
                                .microbatches = request.microbatches,
                                .costs = {},
                                .memory = {.kept_by_F = 1, .freed_by_I = 0},
                                .limit = 2.0 * request.ranks - 1});
}

}  // namespace

Generator zb_h2() {
  return {{.name = "zb-h2",
           .title = "ZB-H2",
           .paper = "Qi et al. 2023, arXiv:2401.10241",
           .placement = StagePlacement::Line,
           .sizes = "any",
           .bubble = "(p-1)(f+i-2w) for m >= 2p-1, w <= f, 2w <= f+i",
           .memory = "at most min(m, 2p-1)"},
          any_size,
          generate_zb_h2};
}

}  // namespace piper::timelines
