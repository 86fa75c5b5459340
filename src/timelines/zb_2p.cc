// ZB-2p: the cost-aware zero-bubble order with room for 2p forwards on every rank.
//   rank 0 of 2, 3 microbatches:  0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2
// Line, any size; the order is that of zb_heuristic.h. A memory limit replaces the published one.
// Idle time depends on the costs; at equal ones and m >= 2p no gap from a rank's first to its last pass. Keeps what 2p
// forwards keep; by default I frees half of a forward and W the other half.
#include "timelines/generator.h"
#include "timelines/zb_heuristic.h"

namespace piper::timelines {
namespace {

Timeline generate_zb_2p(const TimelineRequest& request) {
  return zero_bubble_heuristic({.ranks = request.ranks,
                                .microbatches = request.microbatches,
                                .costs = request.costs.value_or(TimelineCosts{}),
                                .memory = request.memory.value_or(TimelineMemory{}),
                                .limit = request.memory_limit.value_or(2.0 * request.ranks)});
}

}  // namespace

Generator zb_2p() {
  return {{.name = "zb-2p",
           .title = "ZB-2p",
           .paper = "Qi et al. 2023, arXiv:2401.10241",
           .placement = StagePlacement::Line,
           .sizes = "any",
           .bubble = "0 for m >= 2p, f = i = w",
           .memory = "2p, or the limit; I and W free half each",
           .takes_memory = true,
           .uses_costs = true},
          any_size,
          generate_zb_2p};
}

}  // namespace piper::timelines
