// Interleaved 1F1B: 1F1B in which a rank's chunks take turns, group of microbatches by group.
//   rank 0 of 2, 2 microbatches, 2 stages per rank:  0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1
// Loop, v >= 2. Any m without --group; with groups of g: m <= g, or g >= p and (m % g == 0 or g + m % g >= 2p-2).
// m % p == 0: idle (p-1)(f+b) per rank; keeps min(m v, (v-1)p + 2(p-1-r) + 1) activations.
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
  return check_group("interleaved-1f1b", request, where, is_legal_group_interleaved_1f1b);
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
          [](const TimelineRequest& request) { return interleaved(request, Backward::Whole); }};
}

}  // namespace piper::timelines
