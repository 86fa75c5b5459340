#include "property/random_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "property/random_lists.h"
#include "schedule/timelines/library.h"

namespace piper::property {
namespace {

/// Sizes of a schedule along a mesh.
struct MeshSizes {
  int pp = 1, edp = 1, ep = 1;  // ep = 1: no axis of its own for experts
  int stages = 1, microbatches = 1;
  std::string shape = "loop", timeline;
};

/// Stages and microbatches for which the timeline is defined.
MeshSizes sizes_for(const TimelineInfo& info, Random& random) {
  MeshSizes sizes;
  sizes.timeline = info.name;
  sizes.pp = info.placement == Placement::TwoWay ? 2 * random.between(1, 2) : random.between(1, 3);
  const int per_rank = info.takes_stages_per_rank ? random.between(std::max(1, info.default_stages_per_rank), 2)
                                                  : info.default_stages_per_rank;
  sizes.stages = stage_count(info.placement, sizes.pp, per_rank);
  sizes.shape = info.placement == Placement::V ? "v" : info.placement == Placement::TwoWay ? "two_way" : "loop";
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

MeshSizes random_sizes(Random& random) {
  MeshSizes sizes;
  if (random.percent(75)) {
    sizes = sizes_for(random.pick(timeline_library()), random);
  } else {
    sizes.pp = random.between(1, 4);
    sizes.stages = sizes.pp * random.between(1, 2);
    sizes.shape = random.pick<std::string>({"loop", "v"});
    sizes.microbatches = random.between(1, 4);
  }
  sizes.edp = random.pick<int>({1, 1, 2, 3});
  sizes.ep = random.pick<int>({1, 1, 2, 4});
  return sizes;
}

class MeshWriter {
 public:
  MeshWriter(Random& random, const MeshSizes& sizes, const RandomModel& model)
      : random_(random), sizes_(sizes), model_(model) {}

  std::string write() {
    add("mesh(pp={}, edp={}, ep={})", sizes_.pp, sizes_.edp, sizes_.ep);
    add("split(batch, parts={}, as=mb)", sizes_.microbatches);
    add("place({{}}, along=pp, stages={}, shape={}{})", sizes_.stages, sizes_.shape, cuts());
    add_replicas();
    const bool all_divide = expert_count % (sizes_.edp * sizes_.ep) == 0;
    if (model_.has_experts && random_.percent(75))
      add("shard({{experts=*}}, along={})", all_divide && random_.percent(30) ? "[edp, ep]" : "ep");
    text_ += random_recompute(random_, model_);
    if (gathers_ && random_.percent(60)) text_ += random_prefetch(random_);
    if (!sizes_.timeline.empty()) add("use {}(stages=stage, microbatches=mb)", sizes_.timeline);
    return text_;
  }

 private:
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format(format, std::forward<Arguments>(arguments)...) + "\n";
  }

  /// Sometimes the user says where the stages begin.
  std::string cuts() {
    if (sizes_.stages == 1 || !random_.percent(20)) return "";
    std::vector<int> starts(static_cast<size_t>(std::max(model_.layers, model_.encoders)) - 1);
    std::iota(starts.begin(), starts.end(), 1);
    random_.shuffle(starts);
    starts.resize(static_cast<size_t>(sizes_.stages) - 1);
    std::sort(starts.begin(), starts.end());
    return fmt::format(", at=[{}]", fmt::join(starts, ", "));
  }

  void replicate(const std::string& what) {
    const ReplicaChoice choice = random_replicas(random_);
    add("replicate({}, along=[edp, ep]{})", what, choice.arguments);
    gathers_ = gathers_ || (choice.zero == 3 && sizes_.edp * sizes_.ep > 1);
  }

  void add_replicas() {
    if (sizes_.edp * sizes_.ep == 1 && random_.percent(50)) return;
    if (random_.percent(70)) return replicate("{}");
    // chunks that share a parameter need the same directive
    if (model_.shares && !random_.percent(10)) return replicate("{}");
    for (const char* what : {"{encoder=*}", "{layer=*}", "{head=*}"}) replicate(what);
  }

  Random& random_;
  MeshSizes sizes_;
  const RandomModel& model_;
  std::string text_;
  bool gathers_ = false;
};

}  // namespace

Scenario random_scenario(Random& random) {
  if (random.percent(40)) return random_lists(random);
  const MeshSizes sizes = random_sizes(random);
  ModelWish wish;
  wish.batch = int64_t{sizes.microbatches} * sizes.edp * sizes.ep * random.between(1, 2);
  wish.fewest_layers = std::max(2, sizes.stages);
  wish.most_layers = wish.fewest_layers + 2;
  wish.splits_backward = !sizes.timeline.empty();
  Scenario scenario;
  scenario.model = random_model(random, wish);
  scenario.schedule = MeshWriter(random, sizes, scenario.model).write();
  return scenario;
}

}  // namespace piper::property
