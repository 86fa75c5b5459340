#include "recover/lighter_stages.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "directives/instances.h"

namespace piper {
namespace {

/// How fast each stage is, compared with before.
std::vector<double> speeds(const Loss& loss, const StageTags& stages, const std::vector<Hit>& hits,
                           const std::vector<Share>& shares) {
  const TrainingDag& dag = loss.placed;
  std::vector<double> out(static_cast<size_t>(*std::ranges::max_element(stages.of_chunk)) + 1, 1);
  for (const Node& node : dag.nodes) {
    const int stage = stages.of_chunk[node.tags.chunk.index()];
    for (size_t h = 0; stage >= 0 && h < hits.size(); ++h)
      if (std::ranges::find(hits[h].placements, node.group) != hits[h].placements.end())
        out[static_cast<size_t>(stage)] = 1 / std::max(1.0, shares[h].load);
  }
  return out;
}

/// The first instance of each stage after the first: shares of `count` by speed, each at least one.
std::vector<int> cuts(const std::vector<double>& speed, int count) {
  const double all = std::accumulate(speed.begin(), speed.end(), 0.0);
  const auto stages = static_cast<int>(speed.size());
  std::vector<int> at;
  double passed = 0;
  for (int s = 0; s + 1 < stages; ++s) {
    passed += speed[static_cast<size_t>(s)];
    const int first = at.empty() ? 0 : at.back();
    at.push_back(std::clamp(static_cast<int>(std::lround(passed / all * count)), first + 1, count - (stages - 1 - s)));
  }
  return at;
}

}  // namespace

std::optional<Schedule> with_lighter_stages(const Loss& loss, const std::vector<Hit>& hits,
                                            const std::vector<Share>& shares) {
  Schedule out = loss.schedule;
  bool changed = false;
  for (Directive& directive : out.directives) {
    auto* place = std::get_if<Place>(&directive.body);
    if (!place || place->stages < 2) continue;
    const auto stages = std::ranges::find(loss.placed.stages, place->as, &StageTags::tag);
    std::vector<ChunkId> chunks;
    for (size_t c = 0; c < stages->of_chunk.size(); ++c)
      if (stages->of_chunk[c] >= 0) chunks.push_back(ChunkId(c));
    const Instances instances = find_instances(*loss.placed.model, chunks);
    const std::vector<int> at = cuts(speeds(loss, *stages, hits, shares), instances.count);
    if (at == place->at) continue;
    place->at = at;
    directive.arguments = {};
    changed = true;
  }
  return changed ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace piper
