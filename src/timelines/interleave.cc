#include "timelines/interleave.h"

#include <fmt/format.h>

#include <algorithm>

namespace piper::timelines {
namespace {

/// `use groups of 4 or 8`
std::string nearest_legal_groups(const TimelineRequest& request, bool (*is_legal)(const TimelineRequest&)) {
  const auto legal = [&](int group) {
    TimelineRequest other = request;
    other.group = group;
    return is_legal(other);
  };
  int below = *request.group - 1;
  while (below >= 1 && !legal(below)) --below;
  // A single group is always legal.
  int above = *request.group + 1;
  while (above < request.microbatches && !legal(above)) ++above;
  if (below < 1) return fmt::format("use groups of {}", above);
  return fmt::format("use groups of {} or {}", below, above);
}

}  // namespace

std::vector<int> microbatch_groups(const TimelineRequest& request) {
  std::vector<int> groups;
  if (request.group) {
    for (int left = request.microbatches; left > 0; left -= *request.group)
      groups.push_back(std::min(left, *request.group));
    return groups;
  }
  const int count = std::max(1, request.microbatches / request.ranks);
  const int larger = request.microbatches % count;
  for (int i = 0; i < count; ++i) groups.push_back(request.microbatches / count + (i < larger ? 1 : 0));
  return groups;
}

std::vector<Turn> forward_turns(const std::vector<int>& groups, int chunks) {
  std::vector<Turn> turns;
  int first = 0;
  for (const int size : groups) {
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int i = 0; i < size; ++i) turns.push_back({chunk, first + i});
    first += size;
  }
  return turns;
}

std::vector<Turn> backward_turns(const std::vector<int>& groups, int chunks) {
  std::vector<Turn> turns = forward_turns(groups, chunks);
  for (Turn& turn : turns) turn.chunk = chunks - 1 - turn.chunk;
  return turns;
}

Timeline interleaved(const TimelineRequest& request, Backward backward) {
  const std::vector<int> groups = microbatch_groups(request);
  const std::vector<Turn> forwards = forward_turns(groups, request.stages_per_rank);
  const std::vector<Turn> backwards = backward_turns(groups, request.stages_per_rank);
  const int turns = static_cast<int>(forwards.size());
  const bool split = backward == Backward::Split;
  Timeline timeline;
  for (int rank = 0; rank < request.ranks; ++rank) {
    std::vector<TimelineCell>& row = timeline.ranks.emplace_back();
    const auto add = [&](Pass pass, const Turn& turn) {
      row.push_back({{stage_of(StagePlacement::Loop, rank, turn.chunk, request.ranks), pass, turn.microbatch}, {}});
    };
    const int lead = (split ? 1 : 2) * (request.ranks - 1 - rank);
    const int warm_up = std::min((request.stages_per_rank - 1) * groups.front() + lead, turns);
    for (int i = 0; i < warm_up; ++i) add(Pass::F, forwards[i]);
    for (int i = 0; i < turns; ++i) {
      if (warm_up + i < turns) add(Pass::F, forwards[warm_up + i]);
      add(split ? Pass::BI : Pass::B, backwards[i]);
      if (split && i >= rank) add(Pass::BW, backwards[i - rank]);
    }
    if (split)
      for (int i = std::max(0, turns - rank); i < turns; ++i) add(Pass::BW, backwards[i]);
  }
  return timeline;
}

Checked check_group(std::string_view timeline, const TimelineRequest& request, const SourceRange& where,
                    bool (*is_legal)(const TimelineRequest&)) {
  if (!request.group || is_legal(request)) return Ok{};
  return error(ErrorCode::E314, where,
               fmt::format("{} with {} ranks and {} microbatches would deadlock in groups of {}", timeline,
                           request.ranks, request.microbatches, *request.group))
      .help(nearest_legal_groups(request, is_legal));
}

}  // namespace piper::timelines
