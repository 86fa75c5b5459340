#include "property/random_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "property/random_lists.h"

namespace piper::property {
namespace {

/// Sizes of a schedule along a mesh.
struct MeshSizes : PipelineSizes {
  int edp = 1, ep = 1;  // ep = 1: no axis of its own for experts
};

MeshSizes random_sizes(Random& random) {
  MeshSizes sizes{random_pipeline(random)};
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
