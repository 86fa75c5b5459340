#include "schedule/schedule.h"

#include <algorithm>

namespace piper {
namespace {

constexpr std::string_view verbs[] = {"devices", "mesh",      "split",    "place", "replicate",
                                      "shard",   "recompute", "prefetch", "order", "use"};
static_assert(std::size(verbs) == std::variant_size_v<DirectiveBody>);

}  // namespace

bool TagCondition::matches(int index) const {
  return any || std::any_of(indices.begin(), indices.end(), [&](const IndexRange& r) { return r.contains(index); });
}

const TagCondition* Filter::find(std::string_view tag) const {
  const auto found =
      std::find_if(conditions.begin(), conditions.end(), [&](const TagCondition& c) { return c.tag == tag; });
  return found == conditions.end() ? nullptr : &*found;
}

int stage_coordinate(StageShape shape, int stage, int ranks) {
  const int round = stage / ranks, offset = stage % ranks;
  return shape == StageShape::V && round % 2 != 0 ? ranks - 1 - offset : offset;
}

std::string_view verb(const DirectiveBody& body) {
  return verbs[body.index()];
}

std::vector<std::string> all_verbs() {
  return {std::begin(verbs), std::end(verbs)};
}

bool is_time_directive(const DirectiveBody& body) {
  return std::holds_alternative<Order>(body) || std::holds_alternative<Use>(body) ||
         std::holds_alternative<Prefetch>(body);
}

}  // namespace piper
