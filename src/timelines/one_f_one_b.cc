// 1F1B: as few forwards as fill the pipeline, then one forward and one backward in turn.
//   rank 0 of 2, 3 microbatches:  0F0 0F1 0B0 0F2 0B1 0B2
// Line, any size. Idle (p-1)(f+b) per rank; keeps min(m, p-r) activations.
#include <algorithm>

#include "timelines/generator.h"
#include "timelines/row.h"

namespace piper::timelines {
namespace {

std::vector<TimelineCell> row_of_one_f_one_b(int rank, const TimelineRequest& request) {
  const int warm_up = std::min(request.ranks - 1 - rank, request.microbatches);
  Row row({StageOnRank{rank}});
  for (int i = 0; i < warm_up; ++i) row.forward(0);
  for (int i = warm_up; i < request.microbatches; ++i) {
    row.forward(0);
    row.backward(0);
  }
  for (int i = 0; i < warm_up; ++i) row.backward(0);
  return row.take();
}

Timeline generate_one_f_one_b(const TimelineRequest& request) {
  Timeline timeline;
  for (int rank = 0; rank < request.ranks; ++rank) timeline.ranks.push_back(row_of_one_f_one_b(rank, request));
  return timeline;
}

}  // namespace

Generator one_f_one_b() {
  return {{.name = "1f1b",
           .title = "1F1B",
           .paper = "Narayanan et al. 2019 and 2021, arXiv:2104.04473",
           .placement = StagePlacement::Line,
           .sizes = "any",
           .bubble = "(p-1)(f+b)",
           .memory = "min(m, p-r)"},
          any_size,
          generate_one_f_one_b};
}

}  // namespace piper::timelines
