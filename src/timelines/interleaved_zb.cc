// Interleaved zero bubble: interleaved 1F1B with a shorter warm-up, and W postponed by as many I as the rank's number.
//   rank 1 of 2, 2 microbatches, 1 stage per rank:  1F0 1I0 1F1 1I1 1W0 1W1
// Loop, v >= 1. Any m without --group; with groups of g: m <= g or g >= p.
// m % p == 0 and w <= min(f, i): (p-1)(f+i-w) from a rank's first to its last pass; keeps v p activations until W.
#include <fmt/format.h>

#include <algorithm>

#include "timelines/generator.h"
#include "timelines/interleave.h"

namespace piper::timelines {
namespace {

bool is_legal_group_interleaved_zb(const TimelineRequest& request) {
  return request.microbatches <= *request.group || *request.group >= request.ranks;
}

Checked check_interleaved_zb(const TimelineRequest& request, const SourceRange& where) {
  if (request.group && !is_legal_group_interleaved_zb(request))
    return error(ErrorCode::E314, where,
                 fmt::format("interleaved-zb with {} ranks and {} microbatches would deadlock in groups of {}",
                             request.ranks, request.microbatches, *request.group))
        .help(nearest_legal_groups(request, is_legal_group_interleaved_zb));
  return Ok{};
}

}  // namespace

Timeline interleaved_zero_bubble(const TimelineRequest& request) {
  const std::vector<int> groups = microbatch_groups(request);
  const std::vector<Turn> forwards = forward_turns(groups, request.stages_per_rank);
  const std::vector<Turn> backwards = backward_turns(groups, request.stages_per_rank);
  const int turns = static_cast<int>(forwards.size());
  Timeline timeline;
  for (int rank = 0; rank < request.ranks; ++rank) {
    std::vector<TimelineCell>& row = timeline.ranks.emplace_back();
    const auto add = [&](Pass pass, const Turn& turn) {
      row.push_back({{stage_of(StagePlacement::Loop, rank, turn.chunk, request.ranks), pass, turn.microbatch}, {}});
    };
    const int warm_up = std::min((request.stages_per_rank - 1) * groups.front() + request.ranks - 1 - rank, turns);
    for (int i = 0; i < warm_up; ++i) add(Pass::F, forwards[i]);
    for (int i = 0; i < turns; ++i) {
      if (warm_up + i < turns) add(Pass::F, forwards[warm_up + i]);
      add(Pass::BI, backwards[i]);
      if (i >= rank) add(Pass::BW, backwards[i - rank]);
    }
    for (int i = std::max(0, turns - rank); i < turns; ++i) add(Pass::BW, backwards[i]);
  }
  return timeline;
}

Generator interleaved_zb() {
  return {{.name = "interleaved-zb",
           .title = "Interleaved zero bubble",
           .paper = "Qi et al. 2023, arXiv:2401.10241, as in torch.distributed.pipelining",
           .placement = StagePlacement::Loop,
           .default_stages_per_rank = 2,
           .sizes = "any; with --group g: m <= g or g >= p",
           .bubble = "(p-1)(f+i-w) for m % p = 0, w <= min(f, i)",
           .memory = "v p for m % p = 0",
           .takes_stages_per_rank = true,
           .takes_group = true},
          check_interleaved_zb,
          interleaved_zero_bubble};
}

}  // namespace piper::timelines
