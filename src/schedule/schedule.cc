#include "schedule/schedule.h"

#include <algorithm>
#include <utility>

namespace piper {
namespace {

constexpr std::string_view verbs[] = {"devices", "mesh",      "split",     "place",    "lose",  "replicate",
                                      "shard",   "recompute", "precision", "prefetch", "order", "use"};
static_assert(std::size(verbs) == std::variant_size_v<DirectiveBody>);

template <size_t... index>
std::optional<DirectiveBody> directive_at(size_t position, std::index_sequence<index...>) {
  std::optional<DirectiveBody> out;
  ((position == index ? void(out.emplace(std::in_place_index<index>)) : void()), ...);
  return out;
}

}  // namespace

bool TagCondition::matches(std::optional<int> index) const {
  if (!index) return !words.empty();  // none is the only word that a tag can have
  return any || std::any_of(indices.begin(), indices.end(), [&](const IndexRange& r) { return r.contains(*index); });
}

const TagCondition* Filter::find(std::string_view tag) const {
  const auto found =
      std::find_if(conditions.begin(), conditions.end(), [&](const TagCondition& c) { return c.tag == tag; });
  return found == conditions.end() ? nullptr : &*found;
}

const ArgumentPlace* ArgumentPlaces::find(std::string_view name) const {
  const auto found = std::find_if(all.begin(), all.end(), [&](const ArgumentPlace& a) { return a.name == name; });
  return found == all.end() ? nullptr : &*found;
}

SourceRange place_of_number(const ArgumentPlace& argument, int64_t index) {
  for (const ArgumentPlace& item : argument.items) {
    if (index < item.numbers) return place_of_number(item, index);
    index -= item.numbers;
  }
  return argument.where;
}

int stage_coordinate(StageShape shape, int stage, int ranks) {
  const int round = stage / ranks, offset = stage % ranks;
  return shape == StageShape::V && round % 2 != 0 ? ranks - 1 - offset : offset;
}

std::string_view verb(const DirectiveBody& body) {
  return verbs[body.index()];
}

std::string_view verb_of(std::string_view text) {
  return text.substr(0, text.find_first_of("( "));
}

std::vector<std::string> all_verbs() {
  return {std::begin(verbs), std::end(verbs)};
}

std::optional<DirectiveBody> directive_named(std::string_view verb) {
  const size_t position = std::find(std::begin(verbs), std::end(verbs), verb) - std::begin(verbs);
  return directive_at(position, std::make_index_sequence<std::size(verbs)>());
}

bool is_time_directive(const DirectiveBody& body) {
  return std::holds_alternative<Order>(body) || std::holds_alternative<Use>(body) ||
         std::holds_alternative<Prefetch>(body);
}

}  // namespace piper
