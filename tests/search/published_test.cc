// What others published is never faster than what a search finds for the same model, cluster and batch. Short: with
// their mesh, for the smaller ones. Long: with any.
#include <gtest/gtest.h>

#include "cost/load_cluster.h"
#include "model/load_model.h"
#include "must.h"
#include "property/random.h"
#include "schedule/load_schedule.h"
#include "schedule/schedule_text.h"
#include "search/search.h"

namespace piper::search_cases {
namespace {

const std::string folder = std::string(PIPER_SOURCE_DIR) + "/examples/published/";

struct Setting {
  std::string model, cluster;
  int64_t batch, sequence;
  int devices;
};

Problem problem_of(const Setting& setting, Fixed fixed = {}) {
  StepOverrides step;
  step.batch = setting.batch;
  step.sequence = setting.sequence;
  const auto load = [model = setting.model, step](LayerForm form,
                                                  TokenForm tokens) -> Result<std::shared_ptr<const ModelGraph>> {
    PIPER_TRY(ModelGraph loaded, load_model(model, step, form, tokens));
    return std::make_shared<const ModelGraph>(std::move(loaded));
  };
  return must(make_problem(load, must(load_cluster(setting.cluster)), {}, setting.devices, {}, std::move(fixed)));
}

Schedule schedule_in(const std::string& text) {
  return must(parse_schedule(make_source("published.piper", text)));
}

/// The search is stopped as soon as it is as fast as all of them, however long that takes. What does not fit here is no
/// answer, but not faster either.
void expect_found(const Problem& problem, const std::vector<Schedule>& published) {
  double theirs = std::numeric_limits<double>::infinity();
  for (const Schedule& schedule : published)
    theirs = std::min(theirs, must(evaluate(problem, "published", schedule)).report.seconds);
  std::atomic<bool> stop = false;
  SearchOptions options;
  options.budget = 1e9;
  options.stop = &stop;
  options.progress = [&](const SearchProgress& now) { stop = now.best && now.best->report.seconds <= theirs; };
  const SearchResult found = must(search(problem, {}, options));
  ASSERT_TRUE(found.best());
  EXPECT_LE(found.best()->report.seconds, theirs) << print(found.best()->schedule);
  EXPECT_LE(found.best()->memory.total, found.best()->capacity.value_or(found.best()->memory.total));
}

Fixed mesh_unless_long(int pp, int dp, int ep, int tp) {
  Fixed out;
  if (!property::long_run()) out.size = {{pp, dp, ep, 1, tp}};
  return out;
}

std::vector<Schedule> files(const std::string& model) {
  std::vector<Schedule> out;
  for (const char* timeline : {"1f1b", "interleaved", "dualpipev"})
    out.push_back(must(load_schedule(folder + model + "_" + timeline + ".piper")));
  return out;
}

TEST(Published, MixturesOfPiper) {
  expect_found(problem_of({"analytic:Piper-qwen3_1b", "a100-40", 128, 512, 32}, mesh_unless_long(8, 1, 4, 1)),
               files("qwen3_1b"));
  expect_found(problem_of({"analytic:Piper-qwen3_9b", "a100-40", 64, 2048, 16}, mesh_unless_long(4, 1, 4, 1)),
               files("qwen3_9b"));
}

/// Nodes as devices, without tensor parallelism inside of them.
TEST(Published, MegatronWithNodesAsDevices) {
  if (!property::long_run()) GTEST_SKIP() << "long";
  const std::string nodes = folder + "dgx_as_one_device.toml";
  Fixed whole;
  whole.size[Axis::Tp] = 1;
  expect_found(problem_of({"analytic:GPT-3-175B", nodes, 1536, 2048, 48}, whole),
               {must(load_schedule(folder + "gpt_175b.piper"))});
  expect_found(problem_of({folder + "gpt_1t.toml", nodes, 3072, 2048, 384}, whole),
               {must(load_schedule(folder + "gpt_1t.piper"))});
}

/// Tensor parallelism inside of nodes, pipelines and replicas across them; a sample to a microbatch, layers recomputed.
Schedule megatron(int pp, int dp, int microbatches, int stages) {
  return schedule_in(fmt::format(
      "mesh(pp={}, dp={}, tp=8)\nsplit(batch, parts={}, as=mb)\nplace({{}}, along=pp, stages={})\n"
      "replicate({{}}, along=dp, zero=0, bucket=500MB)\nshard({{}}, along=tp, vocabulary=on)\nrecompute({{layer=*}})\n"
      "use {}(stages=stage, microbatches=mb)\n",
      pp, dp, microbatches, stages, stages == pp ? "1f1b" : "interleaved_1f1b"));
}

/// Narayanan et al., SC21: table 2 for 175 billion parameters, table 1 for more.
TEST(Published, MegatronTable) {
  if (!property::long_run()) GTEST_SKIP() << "long";
  expect_found(problem_of({"analytic:GPT-3-175B", "a100-80", 1536, 2048, 384}),
               {megatron(12, 4, 384, 12), megatron(12, 4, 384, 24)});
  expect_found(problem_of({folder + "gpt_530b.toml", "a100-80", 2520, 2048, 2520}),
               {megatron(35, 9, 280, 35), megatron(35, 9, 280, 105)});
  expect_found(problem_of({folder + "gpt_1t.toml", "a100-80", 3072, 2048, 3072}),
               {megatron(64, 6, 512, 64), megatron(64, 6, 512, 128)});
}

/// DeepSeek-AI 2024, section 3.2: PP 16, EP 64, ZeRO 1, no tensor parallelism, here with DualPipeV and all of a layer
/// recomputed, of which they recompute parts. The other is written by hand.
TEST(Published, DeepSeek) {
  if (!property::long_run()) GTEST_SKIP() << "long";
  const auto with = [](const std::string& mesh, const std::string& place, const std::string& use) {
    return schedule_in("mesh(" + mesh + ")\nsplit(batch, parts=120, as=mb)\nplace({}, along=pp, " + place +
                       ")\nreplicate({}, along=[dp, ep], zero=1, bucket=100MB)\nshard({experts=*}, along=ep)\n"
                       "recompute({layer=*})\nuse " +
                       use + "(stages=stage, microbatches=mb)\n");
  };
  expect_found(
      problem_of({"analytic:DeepSeek-V3", "h100", 15'360, 4096, 2048}),
      {with("pp=16, dp=2, ep=64", "stages=32, shape=v", "dualpipev"), with("pp=16, dp=16, ep=8", "stages=16", "1f1b")});
}

}  // namespace
}  // namespace piper::search_cases
