// Bounds are bounds: on random points of random spaces no step is faster than its bound says, and none needs less
// memory.
#include "search/bound.h"

#include <gtest/gtest.h>

#include "cost/load_cluster.h"
#include "model/load_model.h"
#include "must.h"
#include "property/random.h"
#include "schedule/schedule_text.h"
#include "search/evaluate.h"
#include "search/spaces.h"

namespace piper::search_cases {
namespace {

using property::Random;

/// One leaf of the space, each choice at random; nothing if the compiler refuses it.
std::optional<Candidate> random_leaf(const Problem& problem, Bounds& bounds, Random& random) {
  const std::vector<Candidate> all = meshes(problem.limits);
  const std::vector<Candidate> forms = piper::forms(problem.limits, random.pick(all));
  const std::vector<Candidate> pipelines = piper::pipelines(problem.limits, random.pick(forms));
  if (pipelines.empty()) return std::nullopt;
  Candidate pipeline = random.pick(pipelines);
  if (stages_of(pipeline) > 1 && random.percent(50))
    if (const auto cuts = bounds.balanced_cuts(pipeline)) pipeline.at = *cuts;
  return random.pick(replications(problem.limits, pipeline));
}

TEST(Bounds, NoStepIsFasterOrSmaller) {
  const int spaces = property::long_run() ? 200 : 24, points = 12;
  int compared = 0;
  for (int seed = 0; seed < spaces; ++seed) {
    Random random(static_cast<uint64_t>(seed));
    const Problem problem = random_problem(random);
    Bounds bounds(problem);
    for (int p = 0; p < points; ++p) {
      const auto leaf = random_leaf(problem, bounds, random);
      if (!leaf) continue;
      const auto made = evaluate(problem, *leaf);
      if (!made) continue;
      SCOPED_TRACE(fmt::format("seed {}, {}, {}\n{}", seed, problem.models[0]->name, problem.cluster.name,
                               print(made->schedule)));
      const auto mesh = bounds.mesh(*leaf), form = bounds.form(*leaf);
      const auto pipeline = bounds.pipeline(*leaf);
      const auto clock = bounds.clock(*leaf);
      ASSERT_TRUE(mesh && form && pipeline && clock);
      const Bound bound = bounds.replication(*leaf, **clock);
      const double seconds = made->report.seconds * (1 + 1e-9);
      EXPECT_LE(*mesh, *form * (1 + 1e-9));
      EXPECT_LE(*form, seconds);
      if (made->fits) {
        EXPECT_LE(pipeline->seconds, seconds);
      }
      EXPECT_LE(pipeline->bytes, made->memory.total);
      EXPECT_TRUE(pipeline->fits || !made->fits);
      EXPECT_LE((*clock)->seconds, seconds);
      EXPECT_LE(bound.seconds, seconds);
      EXPECT_LE(bound.bytes, made->memory.total);
      EXPECT_TRUE(bound.fits || !made->fits);
      EXPECT_TRUE(bounds.may_fit(*leaf) || !made->fits);
      ++compared;
    }
  }
  EXPECT_GT(compared, spaces * points / 4);
}

/// Memory is bounded by timelines of fewer microbatches: three for each rank.
TEST(Bounds, TimelinesKeepNoLessWithMoreMicrobatches) {
  InstanceMemory stage;
  stage.kept = 8, stage.kept_for_weights = 3, stage.handed = 2, stage.recomputed = 5, stage.forward = 1;
  stage.backward = stage.read = stage.made = stage.both = {1, 2, 3, 4, 5, 6};
  int compared = 0;
  const auto peaks = [&](const TimelineInfo& info, TimelineRequest request, int microbatches) {
    request.microbatches = microbatches;
    std::vector<ActivationPeak> out;
    const std::vector<StageMemory> stages(
        static_cast<size_t>(stage_count(info.placement, request.ranks, stages_per_rank(info, request))),
        {stage, stage});
    if (const auto timeline = make_timeline(info.name, request, {}))
      for (const auto& row : timeline->ranks) out.push_back(peak_activations(row, stages));
    return out;
  };
  for (const TimelineInfo& info : timeline_library())
    for (const int ranks : {1, 2, 3, 4, 6, 8})
      for (const int v : info.takes_stages_per_rank ? std::vector<int>{2, 3, 4} : std::vector<int>{0}) {
        if (info.takes_placement) continue;
        const TimelineRequest request{.ranks = ranks, .stages_per_rank = v};
        const auto few = peaks(info, request, 3 * ranks);
        for (int m = 3 * ranks + 1; m <= 3 * ranks + 5 && !few.empty(); ++m)
          for (const int many : {m, m + 5 * ranks}) {
            const auto more = peaks(info, request, many);
            for (size_t r = 0; r < more.size(); ++r, ++compared) {
              SCOPED_TRACE(fmt::format("{} of {} ranks, {} stages each, {} microbatches, rank {}", info.name, ranks, v,
                                       many, r));
              ASSERT_LE(few[r].any, more[r].any);
              for (size_t w = 0; w < few[r].with_whole.size(); ++w)
                ASSERT_LE(few[r].with_whole[w], more[r].with_whole[w]);
            }
          }
      }
  EXPECT_GT(compared, 3000);
}

/// Where reductions are slow, gradients that wait for them once took 22 GiB, which no bound counted.
TEST(Bounds, OfZero3AreNearWhatItNeedsOnASlowNetwork) {
  StepOverrides step;
  step.batch = 32;
  const std::string file = std::string(PIPER_SOURCE_DIR) + "/examples/moe.toml";
  const auto load = [&](LayerForm layers, TokenForm tokens) -> Result<std::shared_ptr<const ModelGraph>> {
    PIPER_TRY(ModelGraph model, load_model(file, step, layers, tokens));
    return std::make_shared<const ModelGraph>(std::move(model));
  };
  const Problem problem = must(make_problem(load, must(load_cluster("ethernet")), {}, 4, {}, {}));
  Candidate candidate;
  candidate.dp = 4;
  candidate.microbatches = 8;
  candidate.timeline = "1f1b";
  candidate.zero = 3;
  candidate.bucket = 100'000'000;
  Bounds bounds(problem);
  const Evaluated made = must(evaluate(problem, candidate));
  const Bound bound = bounds.replication(candidate, *must(bounds.clock(candidate)));
  EXPECT_TRUE(made.fits);
  EXPECT_LE(bound.bytes, made.memory.total);
  EXPECT_LE(made.memory.total, 2 * bound.bytes);
}

}  // namespace
}  // namespace piper::search_cases
