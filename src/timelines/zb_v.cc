// ZB-V: two chunks per rank on a V, so that the last stage is next to the first; no bubble at equal costs.
//   rank 0 of 1, 1 microbatch:  0F0 1F0 1I0 1W0 0I0 0W0
// V, any size. Without costs the published rule; with costs the order of zb_v_heuristic.h.
// Unit costs and m >= 2p-1: no gap from a rank's first to its last pass; keeps 2p activations until W.
#include <algorithm>

#include "timelines/generator.h"
#include "timelines/row.h"
#include "timelines/zb_v_heuristic.h"

namespace piper::timelines {
namespace {

void warm_up_zb_v(Row& row, int ranks, int rank) {
  for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) row.forward(0);
  for (int i = 0; i < rank; ++i) {
    row.forward(1);
    row.forward(0);
  }
}

void steady_zb_v(Row& row, int ranks, int rank, int microbatches) {
  const auto turn_around = [&] {
    row.forward(1);
    row.input(1);
    row.weight(1);
  };
  for (int i = 0; i < ranks - rank; ++i) turn_around();
  while (row.forwards(1) < microbatches) {
    if (row.forwards(0) < microbatches) row.forward(0);
    row.input(0);
    row.weight(0);
    turn_around();
  }
}

void drain_zb_v(Row& row, int ranks, int rank) {
  for (int i = 0; i < rank; ++i) {
    row.input(0);
    row.input(1);
  }
  for (int i = 0; i < ranks - rank; ++i) {
    row.input(0);
    row.weight(0);
  }
  while (row.weight_due(1)) row.weight(1);
  while (row.weight_due(0)) row.weight(0);
}

Timeline follow_rule(const TimelineRequest& request) {
  // The rule needs 2p-1 microbatches; for fewer, what concerns the others is left out.
  const int microbatches = std::max(request.microbatches, 2 * request.ranks - 1);
  Timeline timeline;
  for (int rank = 0; rank < request.ranks; ++rank) {
    Row row({StageOnRank{stage_of(StagePlacement::V, rank, 0, request.ranks)},
             StageOnRank{stage_of(StagePlacement::V, rank, 1, request.ranks)}});
    warm_up_zb_v(row, request.ranks, rank);
    steady_zb_v(row, request.ranks, rank, microbatches);
    drain_zb_v(row, request.ranks, rank);
    std::vector<TimelineCell>& cells = timeline.ranks.emplace_back(row.take());
    std::erase_if(cells, [&](const TimelineCell& cell) { return cell.first.microbatch >= request.microbatches; });
  }
  return timeline;
}

Timeline generate_zb_v(const TimelineRequest& request) {
  if (request.costs)
    if (auto timeline = zb_v_heuristic(request.ranks, request.microbatches, *request.costs))
      return *std::move(timeline);
  return follow_rule(request);
}

}  // namespace

Generator zb_v() {
  return {{.name = "zb-v",
           .title = "ZB-V",
           .paper = "Qi et al. 2023, arXiv:2401.10241",
           .placement = StagePlacement::V,
           .default_stages_per_rank = 2,
           .sizes = "any",
           .bubble = "0 for m >= 2p-1, f = i = w",
           .memory = "2p",
           .uses_costs = true},
          any_size,
          generate_zb_v};
}

}  // namespace piper::timelines
