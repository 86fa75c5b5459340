#include "base/invariant.h"
#include "timelines/library.h"

namespace piper {

std::string_view name(StagePlacement placement) {
  switch (placement) {
    case StagePlacement::Line:
      return "line";
    case StagePlacement::Loop:
      return "loop";
    case StagePlacement::V:
      return "v";
    case StagePlacement::W:
      return "w";
    case StagePlacement::TwoWay:
      return "two-way";
  }
  internal_error("a placement has a name");
}

std::optional<StagePlacement> placement_named(std::string_view text) {
  for (const StagePlacement placement :
       {StagePlacement::Line, StagePlacement::Loop, StagePlacement::V, StagePlacement::W, StagePlacement::TwoWay})
    if (name(placement) == text) return placement;
  return std::nullopt;
}

int stage_count(StagePlacement placement, int ranks, int stages_per_rank) {
  switch (placement) {
    case StagePlacement::Line:
      return ranks;
    case StagePlacement::Loop:
    case StagePlacement::W:
      return ranks * stages_per_rank;
    case StagePlacement::V:
      return 2 * ranks;
    case StagePlacement::TwoWay:
      return ranks;
  }
  internal_error("a placement has stages");
}

int rank_of(StagePlacement placement, int stage, int ranks, int direction) {
  switch (placement) {
    case StagePlacement::Line:
      return stage;
    case StagePlacement::Loop:
      return stage % ranks;
    case StagePlacement::V:
    case StagePlacement::W:
      return stage / ranks % 2 == 0 ? stage % ranks : ranks - 1 - stage % ranks;
    case StagePlacement::TwoWay:
      return direction == 0 ? stage : ranks - 1 - stage;
  }
  internal_error("a placement has ranks");
}

int stage_of(StagePlacement placement, int rank, int chunk, int ranks) {
  switch (placement) {
    case StagePlacement::Line:
      return rank;
    case StagePlacement::Loop:
      return chunk * ranks + rank;
    case StagePlacement::V:
    case StagePlacement::W:
      return chunk * ranks + (chunk % 2 == 0 ? rank : ranks - 1 - rank);
    case StagePlacement::TwoWay:
      return chunk == 0 ? rank : ranks - 1 - rank;
  }
  internal_error("a placement has chunks");
}

int direction_of(StagePlacement placement, int microbatch, int microbatches) {
  return placement == StagePlacement::TwoWay && microbatch >= microbatches / 2 ? 1 : 0;
}

}  // namespace piper
