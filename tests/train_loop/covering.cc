#include "train_loop/covering.h"

#include <map>
#include <optional>
#include <random>
#include <set>

namespace piper {
namespace {

// A grid with more devices, and a timeline with more stages, costs more.
enum MatrixFactor : size_t {
  AtKind,
  AtTimeline,
  AtGrid,
  AtDividing,
  AtBuckets,
  AtRecompute,
  AtHalves,
  AtPairs,
  AtLegs
};
static_assert(AtLegs + 1 == factor_count);

class OpenPairs {
 public:
  OpenPairs() {
    const Point sizes = factor_sizes();
    for (size_t a = 0; a < factor_count; ++a)
      for (size_t b = a + 1; b < factor_count; ++b)
        for (int x = 0; x < sizes[a]; ++x)
          for (int y = 0; y < sizes[b]; ++y) open_.insert(key({a, b, x, y}));
  }
  static std::array<int, 4> key(const FactorPair& p) {
    return {static_cast<int>(p.a), static_cast<int>(p.b), p.value_a, p.value_b};
  }
  std::optional<FactorPair> first() const {
    if (open_.empty()) return {};
    const auto& k = *open_.begin();
    return FactorPair{static_cast<size_t>(k[0]), static_cast<size_t>(k[1]), k[2], k[3]};
  }
  template <class Visit>
  static void each(const Point& point, Visit visit) {
    for (size_t a = 0; a < factor_count; ++a)
      for (size_t b = a + 1; b < factor_count; ++b) visit(key({a, b, point[a], point[b]}));
  }
  int fresh(const Point& point) const {
    int count = 0;
    each(point, [&](const auto& key) { count += open_.contains(key); });
    return count;
  }
  void cover(const Point& point) {
    each(point, [&](const auto& key) { open_.erase(key); });
  }
  void give_up(const FactorPair& pair) { open_.erase(key(pair)); }

 private:
  std::set<std::array<int, 4>> open_;
};

/// The first combination with the pair that is of this sort. What sorts it depends on the first four factors alone.
template <class IsWanted>
std::optional<Point> any_with(const FactorPair& pair, IsWanted is_wanted) {
  const Point sizes = factor_sizes();
  Point point{};
  for (point[AtKind] = 0; point[AtKind] < sizes[AtKind]; ++point[AtKind])
    for (point[AtTimeline] = 0; point[AtTimeline] < sizes[AtTimeline]; ++point[AtTimeline])
      for (point[AtGrid] = 0; point[AtGrid] < sizes[AtGrid]; ++point[AtGrid])
        for (point[AtDividing] = 0; point[AtDividing] < sizes[AtDividing]; ++point[AtDividing]) {
          Point chosen = point;
          chosen[pair.a] = pair.value_a;
          chosen[pair.b] = pair.value_b;
          if (is_wanted(chosen)) return chosen;
        }
  return {};
}

/// Looked up: it depends on the first four factors alone.
bool is_trained(const Point& point) {
  static std::map<std::array<int, 4>, bool> known;
  const auto [found, fresh] = known.try_emplace({point[AtKind], point[AtTimeline], point[AtGrid], point[AtDividing]});
  if (fresh) {
    const Combination c = combination_at(point);
    found->second = !exclusion(c) && !is_too_long(c);
  }
  return found->second;
}

double cost(const Combination& c) {
  return c.layers() * c.slices();
}

Covering find_covering() {
  constexpr int tries = 60;
  const Point sizes = factor_sizes();
  std::mt19937 random(1);
  Covering out;
  OpenPairs pairs;
  while (const auto pair = pairs.first()) {
    const std::optional<Point> start = any_with(*pair, is_trained);
    if (!start) {
      const auto only_too_long = any_with(*pair, [](const Point& p) { return !exclusion(combination_at(p)); });
      if (only_too_long)
        out.too_long.push_back(combination_at(*only_too_long));
      else
        out.excluded.push_back(combination_at(any_with(*pair, [](const Point&) { return true; }).value()));
      pairs.give_up(*pair);
      continue;
    }
    Point best = *start;
    double best_score = 0;
    for (int i = 0; i < tries; ++i) {
      Point point = *start;
      for (size_t f = 0; i > 0 && f < factor_count; ++f)
        if (f != pair->a && f != pair->b) point[f] = static_cast<int>(random() % static_cast<unsigned>(sizes[f]));
      if (!is_trained(point)) continue;
      const double score = pairs.fresh(point) / (100 + cost(combination_at(point)));
      if (score > best_score) {
        best_score = score;
        best = point;
      }
    }
    pairs.cover(best);
    out.trained.push_back(combination_at(best));
  }
  return out;
}

}  // namespace

Point factor_sizes() {
  return {static_cast<int>(subject_kinds().size()),
          static_cast<int>(timeline_names().size()),
          static_cast<int>(device_grids().size()),
          static_cast<int>(dividings().size()),
          2,
          2,
          3,
          3,
          2};
}

Combination combination_at(const Point& point) {
  const auto at = [&](MatrixFactor factor) { return static_cast<size_t>(point[factor]); };
  Combination out;
  out.kind = subject_kinds()[at(AtKind)];
  out.timeline = timeline_names()[at(AtTimeline)];
  out.grid = device_grids()[at(AtGrid)];
  out.dividing = dividings()[at(AtDividing)];
  out.small_buckets = at(AtBuckets) == 1;
  out.recompute = at(AtRecompute) == 1;
  out.halves = static_cast<Halves>(at(AtHalves));
  out.pairs = static_cast<Pairs>(at(AtPairs));
  out.legs = static_cast<Legs>(at(AtLegs));
  return out;
}

bool is_too_long(const Combination& combination) {
  return combination.stages() > 8;
}

const Covering& pairwise_covering() {
  static const Covering out = find_covering();
  return out;
}

std::vector<Combination> full_product(const std::string& kind, const std::string& timeline) {
  std::vector<Combination> out;
  size_t count = 0;
  for (const DeviceGrid& grid : device_grids())
    for (size_t zero = 0; zero <= 3; ++zero)
      for (const bool recompute : {false, true})
        for (const Halves halves : {Halves::AsPublished, Halves::Split, Halves::Whole})
          for (const Pairs pairs : {Pairs::AsPublished, Pairs::None, Pairs::All}) {
            const bool gathers = zero == 3 && grid.replicas * grid.experts > 1;
            const Dividing& dividing = dividings()[gathers ? 3 + count % 3 : zero];
            const Legs legs = count / 6 % 2 == 0 ? Legs::AdamWInFloat64 : Legs::AdamWInFloat32;
            out.push_back({kind, timeline, grid, dividing, count / 3 % 2 == 1, recompute, halves, pairs, legs});
            ++count;
          }
  return out;
}

}  // namespace piper
