// GPipe: all forwards, then all backwards.
//   rank 0 of 2, 3 microbatches:  0F0 0F1 0F2 0B0 0B1 0B2
// Line, any size. Idle (p-1)(f+b) per rank; keeps m activations.
#include "timelines/generator.h"
#include "timelines/row.h"

namespace piper::timelines {
namespace {

Timeline generate_gpipe(const TimelineRequest& request) {
  Timeline timeline;
  for (int rank = 0; rank < request.ranks; ++rank) {
    Row row({StageOnRank{rank}});
    for (int i = 0; i < request.microbatches; ++i) row.forward(0);
    for (int i = 0; i < request.microbatches; ++i) row.backward(0);
    timeline.ranks.push_back(row.take());
  }
  return timeline;
}

}  // namespace

Generator gpipe() {
  return {{.name = "gpipe",
           .title = "GPipe",
           .paper = "Huang et al. 2019, arXiv:1811.06965",
           .placement = StagePlacement::Line,
           .sizes = "any",
           .bubble = "(p-1)(f+b)",
           .memory = "m"},
          any_size,
          generate_gpipe};
}

}  // namespace piper::timelines
