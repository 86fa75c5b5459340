// Looped BFS: every chunk runs all its microbatches before the next chunk starts.
//   rank 0 of 2, 2 microbatches, 2 stages per rank:  0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0
// Loop, any size. Idle (p-1)(f+b) per rank for m >= p; keeps m v activations.
#include "timelines/generator.h"

namespace piper::timelines {
namespace {

std::vector<TimelineCell> row_of_looped_bfs(int rank, const TimelineRequest& request) {
  std::vector<TimelineCell> row;
  for (int chunk = 0; chunk < request.stages_per_rank; ++chunk)
    for (int i = 0; i < request.microbatches; ++i)
      row.push_back({{stage_of(StagePlacement::Loop, rank, chunk, request.ranks), Pass::F, i}, {}});
  // What came last is undone first.
  const std::vector<TimelineCell> forwards = row;
  for (auto cell = forwards.rbegin(); cell != forwards.rend(); ++cell)
    row.push_back({{cell->first.stage, Pass::B, cell->first.microbatch}, {}});
  return row;
}

Timeline generate_looped_bfs(const TimelineRequest& request) {
  Timeline timeline;
  for (int rank = 0; rank < request.ranks; ++rank) timeline.ranks.push_back(row_of_looped_bfs(rank, request));
  return timeline;
}

}  // namespace

Generator looped_bfs() {
  return {{.name = "looped-bfs",
           .title = "Looped BFS",
           .paper = "Lamy-Poirier 2022, arXiv:2211.05953",
           .placement = StagePlacement::Loop,
           .default_stages_per_rank = 2,
           .sizes = "any",
           .bubble = "(p-1)(f+b) for m >= p",
           .memory = "m v",
           .takes_stages_per_rank = true},
          any_size,
          generate_looped_bfs};
}

}  // namespace piper::timelines
