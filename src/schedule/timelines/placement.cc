#include "base/invariant.h"
#include "schedule/timelines/library.h"

namespace piper {

std::string_view name(Placement placement) {
  switch (placement) {
    case Placement::Line:
      return "line";
    case Placement::Loop:
      return "loop";
    case Placement::V:
      return "v";
    case Placement::W:
      return "w";
    case Placement::TwoWay:
      return "two-way";
  }
  internal_error("a placement has a name");
}

std::optional<Placement> placement_named(std::string_view text) {
  for (const Placement placement : {Placement::Line, Placement::Loop, Placement::V, Placement::W, Placement::TwoWay})
    if (name(placement) == text) return placement;
  return std::nullopt;
}

int stage_count(Placement placement, int ranks, int stages_per_rank) {
  switch (placement) {
    case Placement::Line:
      return ranks;
    case Placement::Loop:
    case Placement::W:
      return ranks * stages_per_rank;
    case Placement::V:
      return 2 * ranks;
    case Placement::TwoWay:
      return ranks;
  }
  internal_error("a placement has stages");
}

int rank_of(Placement placement, int stage, int ranks, int direction) {
  switch (placement) {
    case Placement::Line:
      return stage;
    case Placement::Loop:
      return stage % ranks;
    case Placement::V:
    case Placement::W:
      return stage / ranks % 2 == 0 ? stage % ranks : ranks - 1 - stage % ranks;
    case Placement::TwoWay:
      return direction == 0 ? stage : ranks - 1 - stage;
  }
  internal_error("a placement has ranks");
}

int stage_of(Placement placement, int rank, int chunk, int ranks) {
  switch (placement) {
    case Placement::Line:
      return rank;
    case Placement::Loop:
      return chunk * ranks + rank;
    case Placement::V:
    case Placement::W:
      return chunk * ranks + (chunk % 2 == 0 ? rank : ranks - 1 - rank);
    case Placement::TwoWay:
      return chunk == 0 ? rank : ranks - 1 - rank;
  }
  internal_error("a placement has chunks");
}

int direction_of(Placement placement, int microbatch, int microbatches) {
  return placement == Placement::TwoWay && microbatch >= microbatches / 2 ? 1 : 0;
}

}  // namespace piper
