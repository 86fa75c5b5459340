// DualPipeV: two chunks per rank on a V; forward of one chunk is overlapped with backward of the other.
//   rank 0 of 1, 2 microbatches:  0F0 1F0 0F1 1B0 (1F1;0B0) 1B1 0I1 0W1
// V, m >= 2p. Idle at most (p-1)(pair+f-2w) for f >= i >= w; keeps 2p+1 activations.
#include "timelines/dualpipev.h"

#include <fmt/format.h>

#include "timelines/generator.h"

namespace piper::timelines {
namespace {

void warm_up_dualpipev(Row& row, int rank, int ranks) {
  for (int i = 0; i < 2 * (ranks - rank - 1); ++i) row.forward(0);
  for (int i = 0; i <= rank; ++i) {
    row.forward(0);
    row.forward(1);
  }
  for (int i = 0; i < ranks - rank - 1; ++i) {
    row.input(1);
    row.weight();
    row.forward(1);
  }
}

void steady_dualpipev(Row& row, int rank, int ranks, int microbatches) {
  for (int i = 0; i < microbatches - 2 * ranks + rank + 1; ++i) {
    // On the last rank this forward must not wait for the very first gradient: no pair.
    if (i == 0 && rank == ranks - 1) {
      row.forward(0);
      row.backward(1);
    } else {
      row.pair(0, 1);
    }
    row.pair(1, 0);
  }
  for (int i = 0; i < ranks - rank - 1; ++i) {
    row.backward(1);
    row.pair(1, 0);
  }
}

void drain_dualpipev(Row& row, int rank, int ranks) {
  for (int i = 0; i < 2 * (rank + 1); ++i) {
    const int chunk = 1 - i % 2;
    if (i <= rank)
      row.backward(chunk);
    else
      row.input(chunk);
  }
  for (int i = 0; i < ranks - rank - 1; ++i) {
    row.weight();
    row.input(0);
  }
  while (row.weights_due() > 0) row.weight();
}

Checked check_dualpipev(const TimelineRequest& request, const SourceRange& where) {
  if (request.microbatches >= 2 * request.ranks) return Ok{};
  const std::string at_most =
      request.microbatches < 2 ? "" : fmt::format(", or at most {} ranks", request.microbatches / 2);
  return error(ErrorCode::E314, where,
               fmt::format("dualpipev with {} ranks needs at least {} microbatches, not {}", request.ranks,
                           2 * request.ranks, request.microbatches))
      .help(fmt::format("use at least {} microbatches{}", 2 * request.ranks, at_most));
}

Timeline generate_dualpipev(const TimelineRequest& request) {
  Timeline timeline;
  for (int rank = 0; rank < request.ranks; ++rank) {
    const std::vector<StageOnRank> chunks = {{stage_of(StagePlacement::V, rank, 0, request.ranks)},
                                             {stage_of(StagePlacement::V, rank, 1, request.ranks)}};
    timeline.ranks.push_back(dualpipev_row(rank, request.ranks, request.microbatches, chunks));
  }
  return timeline;
}

}  // namespace

std::vector<TimelineCell> dualpipev_row(int rank, int ranks, int microbatches, const std::vector<StageOnRank>& chunks) {
  Row row(chunks);
  warm_up_dualpipev(row, rank, ranks);
  steady_dualpipev(row, rank, ranks, microbatches);
  drain_dualpipev(row, rank, ranks);
  return row.take();
}

Generator dualpipev() {
  return {{.name = "dualpipev",
           .title = "DualPipeV",
           .paper = "DeepSeek-AI 2025, github.com/deepseek-ai/DualPipe",
           .placement = StagePlacement::V,
           .default_stages_per_rank = 2,
           .sizes = "m >= 2p",
           .bubble = "(p-1)(pair+f-2w) for f >= i >= w",
           .memory = "2p+1"},
          check_dualpipev,
          generate_dualpipev};
}

}  // namespace piper::timelines
