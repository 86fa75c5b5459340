#include "property/random_directives.h"

#include <fmt/format.h>

#include <algorithm>

#include "timelines/library.h"

namespace piper::property {
namespace {

PipelineSizes sizes_for(const TimelineInfo& info, Random& random) {
  PipelineSizes sizes;
  sizes.timeline = info.name;
  sizes.pp = info.placement == StagePlacement::TwoWay ? 2 * random.between(1, 2) : random.between(1, 3);
  const int per_rank = info.takes_stages_per_rank ? random.between(std::max(1, info.default_stages_per_rank), 2)
                                                  : info.default_stages_per_rank;
  sizes.stages = stage_count(info.placement, sizes.pp, per_rank);
  sizes.shape = info.placement == StagePlacement::V        ? "v"
                : info.placement == StagePlacement::TwoWay ? "two_way"
                                                           : "loop";
  sizes.microbatches = random.pick<int>({1, 2, 3, 4, 6});
  for (int m = sizes.microbatches; m <= 12; ++m) {
    const TimelineRequest request{.ranks = sizes.pp, .microbatches = m, .stages_per_rank = per_rank};
    if (!make_timeline(info.name, request, {})) continue;
    sizes.microbatches = m;
    return sizes;
  }
  sizes.timeline.clear();
  return sizes;
}

class RandomOrder {
 public:
  RandomOrder(Random& random, size_t cells, int microbatches, bool halves)
      : random_(random),
        cells_(cells),
        halves_(halves),
        forward_(static_cast<size_t>(microbatches), 0),
        backward_(static_cast<size_t>(microbatches), cells) {}

  std::vector<Task> all() {
    std::vector<Task> out;
    const size_t total = forward_.size() * cells_ * (halves_ ? 3 : 2);
    while (out.size() < total) step(out);
    return out;
  }

 private:
  /// One more task, or none if the microbatch it tried has ended.
  void step(std::vector<Task>& out) {
    const int mb = random_.below(static_cast<int>(forward_.size()));
    size_t &f = forward_[static_cast<size_t>(mb)], &b = backward_[static_cast<size_t>(mb)];
    if (halves_ && !weights_.empty() && random_.percent(40)) {
      const size_t w = static_cast<size_t>(random_.below(static_cast<int>(weights_.size())));
      out.push_back(weights_[w]);
      weights_.erase(weights_.begin() + static_cast<std::ptrdiff_t>(w));
      return;
    }
    if (f < cells_) {
      out.push_back({f++, "F", mb});
      return;
    }
    if (b == 0) return;
    out.push_back({--b, halves_ ? "BI" : "B", mb});
    if (halves_) weights_.push_back({b, "BW", mb});
  }

  Random& random_;
  size_t cells_;
  bool halves_;
  std::vector<size_t> forward_, backward_;
  std::vector<Task> weights_;
};

}  // namespace

ReplicaChoice random_replicas(Random& random) {
  ReplicaChoice out;
  out.zero = random.below(4);
  out.arguments = fmt::format(", zero={}", out.zero);
  if (random.percent(70))
    out.arguments += fmt::format(", bucket={}", random.pick<std::string>({"1", "100", "500", "2KB", "1MB"}));
  if (random.percent(30)) out.arguments += ", reduce_stream=reduce";
  if (out.zero > 0 && random.percent(30)) out.arguments += ", gather_stream=gather";
  if (out.zero == 3) out.arguments += fmt::format(", release={}", random.pick<std::string>({"use", "pass", "step"}));
  return out;
}

std::string random_prefetch(Random& random) {
  const std::string what = random.percent(60) ? "comm=gather" : "comm=gather, pass=F";
  const std::string distance = random.percent(20) ? "all" : fmt::format("{}", random.below(4));
  return fmt::format("prefetch({{{}}}, distance={})\n", what, distance);
}

PipelineSizes random_pipeline(Random& random) {
  if (random.percent(75)) return sizes_for(random.pick(timeline_library()), random);
  PipelineSizes sizes;
  sizes.pp = random.between(1, 4);
  sizes.stages = sizes.pp * random.between(1, 2);
  sizes.shape = random.pick<std::string>({"loop", "v"});
  sizes.microbatches = random.between(1, 4);
  return sizes;
}

std::vector<Task> random_tasks(Random& random, size_t cells, int microbatches, bool halves) {
  return RandomOrder(random, cells, microbatches, halves).all();
}

}  // namespace piper::property
