// Interleaved 1F1B: 1F1B in which a rank's chunks take turns, group of microbatches by group.
//   rank 0 of 2, 2 microbatches, 2 stages per rank:  0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1
// Loop, v >= 2. Any m without --group; with groups of g: m <= g, or g >= p and (m % g == 0 or g + m % g >= 2p-2).
// m % p == 0: idle (p-1)(f+b) per rank; keeps min(m v, (v-1)p + 2(p-1-r) + 1) activations.
#include <fmt/format.h>

#include <algorithm>

#include "timelines/generator.h"
#include "timelines/interleave.h"

namespace piper::timelines {
namespace {

bool is_legal_group_interleaved_1f1b(const TimelineRequest& request) {
  const int p = request.ranks, m = request.microbatches, g = *request.group;
  return m <= g || (g >= p && (m % g == 0 || int64_t{g} + m % g >= 2 * int64_t{p} - 2));
}

Checked check_interleaved_1f1b(const TimelineRequest& request, const SourceRange& where) {
  if (request.stages_per_rank < 2)
    return error(ErrorCode::E314, where, "interleaved-1f1b needs at least 2 stages per rank, not 1")
        .help("use 2 stages per rank, or 1f1b");
  if (request.group && !is_legal_group_interleaved_1f1b(request))
    return error(ErrorCode::E314, where,
                 fmt::format("interleaved-1f1b with {} ranks and {} microbatches would deadlock in groups of {}",
                             request.ranks, request.microbatches, *request.group))
        .help(nearest_legal_groups(request, is_legal_group_interleaved_1f1b));
  return Ok{};
}

Timeline generate_interleaved_1f1b(const TimelineRequest& request) {
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
    const int warm_up =
        std::min((request.stages_per_rank - 1) * groups.front() + 2 * (request.ranks - 1 - rank), turns);
    for (int i = 0; i < warm_up; ++i) add(Pass::F, forwards[i]);
    for (int i = warm_up; i < turns; ++i) {
      add(Pass::F, forwards[i]);
      add(Pass::B, backwards[i - warm_up]);
    }
    for (int i = turns - warm_up; i < turns; ++i) add(Pass::B, backwards[i]);
  }
  return timeline;
}

}  // namespace

Generator interleaved_1f1b() {
  return {{.name = "interleaved-1f1b",
           .title = "Interleaved 1F1B",
           .paper = "Narayanan et al. 2021, arXiv:2104.04473",
           .placement = StagePlacement::Loop,
           .default_stages_per_rank = 2,
           .sizes = "v >= 2; with --group g: m <= g, or g >= p and (m % g = 0 or g + m % g >= 2p-2)",
           .bubble = "(p-1)(f+b) for m % p = 0",
           .memory = "min(m v, (v-1)p + 2(p-1-r) + 1) for m % p = 0",
           .takes_stages_per_rank = true,
           .takes_group = true},
          check_interleaved_1f1b,
          generate_interleaved_1f1b};
}

}  // namespace piper::timelines
