// DualPipe: two copies of the model; half of the microbatches enter at the first rank, the other half at the last.
//   rank 0 of 2, 4 microbatches:  0F0 1F2 0F1 1B2 (1F3;0B0) 1B3 0I1 0W1
// Two-way, p and m even, m >= 2p. Each half of the ranks is a DualPipeV of p/2 ranks and m/2 microbatches.
// Idle at most (p/2-1)(pair+f-2w) for f >= i >= w; keeps p+1 activations, and parameters twice.
#include <fmt/format.h>

#include <algorithm>

#include "timelines/dualpipev.h"
#include "timelines/generator.h"

namespace piper::timelines {
namespace {

Checked check_dualpipe(const TimelineRequest& request, const SourceRange& where) {
  const int p = request.ranks, m = request.microbatches;
  if (p % 2 != 0)
    return error(ErrorCode::E314, where, fmt::format("dualpipe needs an even number of ranks, not {}", p))
        .help(p == 1 ? "use 2 ranks, or dualpipev" : fmt::format("use {} or {} ranks, or dualpipev", p - 1, p + 1));
  if (m < 2 * p)
    return error(ErrorCode::E314, where,
                 fmt::format("dualpipe with {} ranks needs at least {} microbatches, not {}", p, 2 * p, m))
        .help(fmt::format("use at least {} microbatches{}", 2 * p,
                          m < 4 ? "" : fmt::format(", or at most {} ranks", m / 4 * 2)));
  if (m % 2 != 0)
    return error(ErrorCode::E314, where, fmt::format("dualpipe needs an even number of microbatches, not {}", m))
        .help(fmt::format("use {} or {} microbatches", m - 1, m + 1));
  return Ok{};
}

Timeline generate_dualpipe(const TimelineRequest& request) {
  const int p = request.ranks, half = request.microbatches / 2;
  Timeline timeline;
  for (int rank = 0; rank < p; ++rank) {
    const bool lower = rank < p / 2;
    const int place = lower ? rank : p - 1 - rank;
    const std::vector<StageOnRank> chunks = {{place, lower ? 0 : half}, {p - 1 - place, lower ? half : 0}};
    timeline.ranks.push_back(dualpipev_row(place, p / 2, half, chunks));
  }
  return timeline;
}

}  // namespace

Generator dualpipe() {
  return {{.name = "dualpipe",
           .title = "DualPipe",
           .paper = "DeepSeek-AI 2024, arXiv:2412.19437",
           .placement = StagePlacement::TwoWay,
           .default_stages_per_rank = 2,
           .sizes = "p and m even, m >= 2p",
           .bubble = "(p/2-1)(pair+f-2w) for f >= i >= w",
           .memory = "p+1, parameters twice"},
          check_dualpipe,
          generate_dualpipe};
}

}  // namespace piper::timelines
