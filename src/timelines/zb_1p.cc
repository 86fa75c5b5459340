// ZB-1p: the cost-aware zero-bubble order with room for p forwards on every rank.
//   rank 1 of 2, 3 microbatches:  1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2
// Line, any size; the order is that of zb_heuristic.h. A memory limit replaces the published one.
// Idle time depends on the costs, at most that of ZB-H1 at equal ones. Keeps what p forwards keep; by default I frees
// half of a forward and W the other half.
#include "timelines/generator.h"
#include "timelines/zb_heuristic.h"

namespace piper::timelines {
namespace {

Timeline generate_zb_1p(const TimelineRequest& request) {
  return zero_bubble_heuristic({.ranks = request.ranks,
                                .microbatches = request.microbatches,
                                .costs = request.costs.value_or(TimelineCosts{}),
                                .memory = request.memory.value_or(TimelineMemory{}),
                                .limit = request.memory_limit.value_or(1.0 * request.ranks)});
}

}  // namespace

Generator zb_1p() {
  return {{.name = "zb-1p",
           .title = "ZB-1p",
           .paper = "Qi et al. 2023, arXiv:2401.10241",
           .placement = StagePlacement::Line,
           .sizes = "any",
           .bubble = "at most that of zb-h1 at f = i = w",
           .memory = "p, or the limit; I and W free half each",
           .takes_memory = true,
           .uses_costs = true},
          any_size,
          generate_zb_1p};
}

}  // namespace piper::timelines
