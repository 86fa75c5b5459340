// Bounds are bounds: on random points of random spaces no step is faster than its bound says, and none needs less
// memory.
#include "search/bound.h"

#include <gmock/gmock.h>
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
  SpaceLimits limits = problem.limits;
  if (random.percent(15)) limits.fixed.timeline = "list";  // otherwise a search tries it last
  const std::vector<Candidate> pipelines = piper::pipelines(limits, random.pick(forms));
  if (pipelines.empty()) return std::nullopt;
  Candidate pipeline = random.pick(pipelines);
  if (stages_of(pipeline) > 1 && random.percent(50))
    if (const auto cuts = bounds.balanced_cuts(pipeline)) pipeline.at = *cuts;
  return random.pick(replications(problem.limits, pipeline));
}

struct Point {
  Candidate leaf;
  Evaluated made;
};
/// Random leaves of a space, as they are.
std::vector<Point> random_points(const Problem& problem, Random& random, int count) {
  Bounds bounds(problem);
  std::vector<Point> out;
  for (int p = 0; p < count; ++p)
    if (const auto leaf = random_leaf(problem, bounds, random))
      if (auto made = evaluate(problem, *leaf)) out.push_back({*leaf, *std::move(made)});
  return out;
}

/// Which bounds a point is below.
std::vector<std::string> broken(Bounds& bounds, const Point& point) {
  const auto& [leaf, made] = point;
  const double seconds = made.report.seconds * (1 + 1e-9);
  const auto mesh = bounds.mesh(leaf), form = bounds.form(leaf);
  const auto pipeline = bounds.pipeline(leaf);
  const auto clock = bounds.clock(leaf);
  for (const auto* why : {mesh ? nullptr : &mesh.error(), form ? nullptr : &form.error(),
                          pipeline ? nullptr : &pipeline.error(), clock ? nullptr : &clock.error()})
    if (why) return {"none where the compiler refuses nothing: " + why->message};
  const Bound bound = bounds.replication(leaf, **clock);
  std::vector<std::string> out;
  const auto hold = [&](const char* what, bool holds) {
    if (!holds) out.emplace_back(what);
  };
  hold("time of the mesh", *mesh <= *form * (1 + 1e-9));
  hold("time of the form", *form <= seconds);
  hold("time of the pipeline", !made.fits || pipeline->seconds <= seconds);
  hold("time of the clock", (*clock)->seconds <= seconds);
  hold("time", bound.seconds <= seconds);
  hold("memory of the pipeline", pipeline->bytes <= made.memory.total);
  hold("memory", bound.bytes <= made.memory.total);
  hold("whether something fits", !made.fits || (pipeline->fits && bound.fits && bounds.may_fit(leaf)));
  return out;
}

/// Faults as those of a bound that is an upper one: what it is made of costs more than it does.
struct Fault {
  const char* what;
  void (*plant)(Problem&);
};
constexpr std::array<Fault, 5> faults = {{
    {"computing takes 2 % more",
     [](Problem& p) {
       for (DeviceKind& kind : p.cluster.kinds) kind.compute_efficiency /= 1.02, kind.memory_efficiency /= 1.02;
     }},
    {"the innermost links are a fifth slower", [](Problem& p) { p.cluster.levels[0].bandwidth /= 1.2; }},
    {"the outermost links are a fifth slower", [](Problem& p) { p.cluster.levels.back().bandwidth /= 1.2; }},
    {"messages come later",
     [](Problem& p) {
       for (LinkLevel& level : p.cluster.levels) level.latency *= 1.5;
     }},
    {"weights are wider", [](Problem& p) { p.step.weights = DType::Float32; }},
}};

/// No step is faster, and none needs less memory; and bounds that were a little higher would not be bounds.
TEST(Bounds, NoStepIsFasterOrSmaller) {
  const int spaces = property::long_run() ? 200 : 24, points = 12;
  size_t compared = 0;
  std::array<int, 4> choices = {};  // points with each of them
  std::array<size_t, faults.size()> seen = {};
  for (int seed = 0; seed < spaces; ++seed) {
    Random random(static_cast<uint64_t>(seed));
    const Problem problem = random_problem(random);
    Bounds bounds(problem);
    const std::vector<Point> found = random_points(problem, random, points);
    for (const Point& point : found) {
      EXPECT_THAT(broken(bounds, point), ::testing::IsEmpty())
          << "seed " << seed << ", " << problem.model << ", " << problem.cluster.name << "\n"
          << print(point.made.schedule);
      const Candidate& c = point.leaf;
      choices[0] += c.cp > 1;
      choices[1] += c.recomputed_stages != every_stage;
      choices[2] += c.timeline == "list";
      choices[3] += c.gather_stream;
    }
    compared += found.size();
    for (size_t f = 0; f < faults.size(); ++f) {
      Problem worse = problem;
      faults[f].plant(worse);
      Bounds of_worse(worse);
      for (const Point& point : found) seen[f] += !broken(of_worse, point).empty();
    }
  }
  EXPECT_GT(compared, static_cast<size_t>(spaces * points / 4));
  for (const int points_with_it : choices) EXPECT_GT(points_with_it, 0);
  for (size_t f = 0; f < faults.size(); ++f) EXPECT_GT(seen[f], 0u) << faults[f].what;
}

/// A value that all devices along tp have is sent in parts, where what reads it has only parts.
TEST(Bounds, OfTransfersKnowThatPartsAreSent) {
  Random random(46);
  const Problem problem = random_problem(random);
  Candidate candidate;
  candidate.pp = candidate.tp = 2;
  candidate.microbatches = 8;
  candidate.sequence = true;
  candidate.timeline = "zb-v";
  candidate.stages_per_rank = 2;
  Bounds bounds(problem);
  EXPECT_THAT(broken(bounds, {candidate, must(evaluate(problem, candidate))}), ::testing::IsEmpty());
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
