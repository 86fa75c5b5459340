#include "timelines/interleave.h"

#include <fmt/format.h>

#include <algorithm>

namespace piper::timelines {

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

std::string nearest_legal_groups(const TimelineRequest& request,
                                 const std::function<bool(const TimelineRequest&)>& is_legal) {
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

}  // namespace piper::timelines
