#include "recover/ways_on.h"

#include <algorithm>

#include "recover/lighter_stages.h"
#include "recover/placing_anew.h"

namespace piper {
namespace {

constexpr size_t most_shares = 3;  // schedules of one kind that are compiled
constexpr size_t most_anew = 4;

/// Their i-th best choices together, or the last there is.
std::vector<Share> chosen(const std::vector<Hit>& hits, size_t i) {
  std::vector<Share> out;
  for (const Hit& hit : hits)
    if (!hit.shares.empty()) out.push_back(hit.shares[std::min(i, hit.shares.size() - 1)]);
  return out;
}

/// As it is, and with its stages in an order that knows their costs.
bool try_both(const Schedule& schedule, const Try& attempt) {
  const bool as_it_is = attempt(schedule);
  const auto list = listed(schedule);
  return (list && attempt(*list)) || as_it_is;
}

void try_shares(const Loss& loss, const std::vector<Hit>& hits, const Try& attempt) {
  size_t most = 0, tried = 0;
  for (const Hit& hit : hits) most = std::max(most, hit.shares.size());
  for (size_t i = 0; i < most && tried < most_shares; ++i) {
    const std::vector<Share> shares = chosen(hits, i);
    if (!attempt(with_shares(loss, loss.schedule, shares))) continue;
    if (++tried > 1) continue;
    if (const auto list = listed(with_shares(loss, loss.schedule, shares))) attempt(*list);
    if (const auto lighter = with_lighter_stages(loss, hits, shares))
      try_both(with_shares(loss, *lighter, shares), attempt);
  }
}

/// Nothing stays on placements of which nothing is left; with `all`, on none that has lost anything.
void try_anew(const Loss& loss, const std::vector<Hit>& hits, bool all, const Try& attempt) {
  std::vector<GroupId> dead;
  std::vector<Hit> others;
  for (const Hit& hit : hits)
    if (all || hit.shares.empty())
      dead.insert(dead.end(), hit.placements.begin(), hit.placements.end());
    else
      others.push_back(hit);
  size_t tried = 0;
  for (const Schedule& schedule : placed_anew(loss, dead))
    for (size_t i = 0; i < most_shares && tried < most_anew; ++i) {
      const bool legal = try_both(with_shares(loss, schedule, chosen(others, i)), attempt);
      tried += legal;
      if (legal || others.empty()) break;
    }
}

}  // namespace

void try_ways_on(const Loss& loss, const Try& attempt, const std::function<bool()>& fits) {
  const std::vector<Hit> hits = find_hits(loss);
  if (hits.empty()) {
    attempt(with_shares(loss, loss.schedule, {}));
    return;
  }
  const bool left = std::ranges::none_of(hits, [](const Hit& hit) { return hit.shares.empty(); });
  if (left) try_shares(loss, hits, attempt);
  if (!left) try_anew(loss, hits, false, attempt);
  if (left || !fits()) try_anew(loss, hits, true, attempt);
}

std::optional<Schedule> listed(Schedule schedule) {
  for (Directive& directive : schedule.directives)
    if (auto* use = std::get_if<Use>(&directive.body)) {
      if (use->timeline == "list" || use->timeline == "file") return std::nullopt;
      *use = {.timeline = "list", .stages = use->stages, .microbatches = use->microbatches, .backward = use->backward};
      directive.arguments = {};
      return schedule;
    }
  return std::nullopt;
}

}  // namespace piper
