// Clusters fitted to steps that another cluster predicts: the fit must find that one.
#include "calibrate/fit_cluster.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/prediction_errors.h"
#include "calibrate/step_path.h"
#include "compile/compile.h"
#include "cost/load_cluster.h"
#include "model/analytic/analytic_model.h"
#include "model/analytic/step_overrides.h"
#include "must.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

std::shared_ptr<const ModelGraph> gpt(int64_t hidden, int64_t layers, int64_t batch, LayerForm form) {
  ModelConfig config = usual_config(Architecture::Gpt);
  config.hidden = hidden;
  config.layers = layers;
  config.heads = hidden / 64;
  config.ffn = 4 * hidden;
  config.vocab = 8192;
  config.seq = 512;
  StepOverrides step;
  step.batch = batch;
  return std::make_shared<const ModelGraph>(must(analytic_model(config, resolve(step, config), form)));
}

std::string schedule(int pp, int dp, int tp, int microbatches) {
  return fmt::format(
             "mesh(pp={}, dp={}, tp={})\nsplit(batch, parts={}, as=mb)\nplace({{}}, along=pp, stages={})\n"
             "replicate({{}}, along=dp)\n",
             pp, dp, tp, microbatches, pp) +
         (tp > 1 ? "shard({layer=*}, along=tp)\n" : "") + "use 1f1b(stages=stage, microbatches=mb)\n";
}

Observation step(int64_t hidden, int64_t layers, int pp, int dp, int tp, int microbatches) {
  const int64_t batch = 8 * microbatches * dp;
  const auto model = gpt(hidden, layers, batch, tp > 1 ? LayerForm::Sharded : LayerForm::Blocks);
  const Schedule parsed = must(parse_schedule(make_source("schedule", schedule(pp, dp, tp, microbatches))));
  CompileOptions options;
  options.cluster = must(load_cluster("a100-80"));
  return {fmt::format("{}", hidden),
          fmt::format("{} {} {}", hidden, layers, pp * dp * tp),
          std::make_shared<const Plan>(must(compile(model, parsed, options)).plan),
          {},
          1};
}

std::vector<Observation> steps() {
  std::vector<Observation> out;
  for (const int64_t hidden : {256, 2048})
    for (const int64_t layers : {4, 8})
      for (const auto [pp, dp, tp] :
           {std::array{1, 2, 1}, std::array{2, 1, 1}, std::array{1, 1, 2}, std::array{1, 8, 2}, std::array{4, 4, 1},
            std::array{2, 2, 4}, std::array{1, 16, 1}})
        for (const int microbatches : {4, 8}) out.push_back(step(hidden, layers, pp, dp, tp, microbatches));
  return out;
}

Cluster planted() {
  Cluster cluster = with_operators(must(load_cluster("a100-80")));
  DeviceKind& kind = cluster.kinds[0];
  kind.compute_efficiency = 0.62;
  kind.memory_efficiency = 0.71;
  kind.operators->issue = 31e-6;
  kind.operators->sharpness = 3;
  cluster.levels[0].latency = 9e-6;
  cluster.levels[1].latency = 21e-6;
  cluster.step = 4e-3;
  return cluster;
}

void measure(std::vector<Observation>& observations, const Cluster& cluster) {
  const std::vector<double> seconds = must(predict(observations, cluster));
  for (size_t i = 0; i < observations.size(); ++i) observations[i].seconds = seconds[i];
}

TEST(StepPath, AddsUpToTheStepForTheClusterItWasFoundWith) {
  const Cluster cluster = planted();
  for (const Observation& o : steps()) {
    const Simulation simulation = must(simulate(*o.plan, cluster));
    EXPECT_NEAR(seconds(path_of(*o.plan, cluster, simulation), cluster) + cluster.step, simulation.seconds,
                1e-9 * simulation.seconds);
  }
}

TEST(FitCluster, FindsThePlantedParameters) {
  std::vector<Observation> observations = steps();
  measure(observations, planted());
  const Cluster fitted = must(fit_cluster(observations, with_operators(must(load_cluster("a100-80")))));
  for (const PredictionErrors& e : errors_of(observations, must(predict(observations, fitted)))) {
    EXPECT_LT(e.mean, 0.005) << e.set;
    EXPECT_LT(e.worst, 0.03) << e.set;
  }
  const DeviceKind &kind = fitted.kinds[0], truth = planted().kinds[0];
  EXPECT_NEAR(kind.compute_efficiency, truth.compute_efficiency, 0.02);
  EXPECT_NEAR(kind.operators->issue, truth.operators->issue, 1e-6);
  EXPECT_NEAR(fitted.step, 4e-3, 0.4e-3);
}

TEST(FitCluster, IsTheSameEveryTime) {
  std::vector<Observation> observations = steps();
  observations.resize(4);
  measure(observations, planted());
  const Cluster start = with_operators(must(load_cluster("a100-80")));
  EXPECT_EQ(print(must(fit_cluster(observations, start))), print(must(fit_cluster(observations, start))));
}

TEST(FitCluster, MeasuredComputationsFitTheDeviceAlone) {
  std::vector<Observation> observations;
  for (const Observation& o : steps())
    for (const WorkId work : o.plan->works.ids())
      if (o.plan->works[work].pass) observations.push_back({o.set, o.job, o.plan, {o.plan, &o.plan->works[work]}, 1});
  measure(observations, planted());
  const Cluster start = with_operators(must(load_cluster("a100-80"))), fitted = must(fit_cluster(observations, start));
  for (const PredictionErrors& e : errors_of(observations, must(predict(observations, fitted))))
    EXPECT_LT(e.mean, 0.005) << e.set;
  EXPECT_EQ(fitted.levels, start.levels) << "nothing was said about links";
  EXPECT_EQ(fitted.step, start.step);
}

TEST(FitCluster, KernelsSayWhatADeviceReaches) {
  std::vector<Observation> observations;
  const auto measured = [&](const MeasuredKernel& kernel) {
    MeasuredStep row;
    row.set = kernel.product ? "products" : "streamed";
    row.kernel = kernel;
    observations.push_back(kernel_observation(row));
  };
  for (const int64_t rows : {64, 1024, 8192})
    for (const int64_t columns : {512, 4096})
      for (const int64_t depth : {1024, 4096}) measured({DType::BFloat16, MatrixProduct{1, rows, columns, depth}, 0});
  for (const int64_t bytes : {1'000, 10'000'000, 1'000'000'000}) measured({DType::BFloat16, {}, bytes});
  measure(observations, planted());
  const Cluster start = with_operators(must(load_cluster("a100-80"))), fitted = must(fit_cluster(observations, start));
  const DeviceKind &kind = fitted.kinds[0], truth = planted().kinds[0];
  EXPECT_NEAR(kind.compute_efficiency, truth.compute_efficiency, 0.005);
  EXPECT_NEAR(kind.memory_efficiency, truth.memory_efficiency, 0.005);
  EXPECT_NEAR(kind.operators->issue, truth.operators->issue, 0.5e-6);
  EXPECT_EQ(fitted.levels, start.levels) << "nothing was said about links";
}

TEST(PredictionErrors, RegretIsThePriceOfTheChosenPlan) {
  const auto measured = [](const char* set, const char* job, double seconds) {
    return Observation{set, job, nullptr, {}, seconds};
  };
  const std::vector<Observation> observations = {measured("a", "1", 1.0), measured("a", "1", 1.5),
                                                 measured("a", "2", 2.0), measured("a", "2", 1.0),
                                                 measured("a", "3", 1.0), measured("b", "1", 4.0)};
  const std::vector<PredictionErrors> errors = errors_of(observations, {1.2, 1.1, 3.0, 1.0, 1.0, 3.0});
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].rows, 5);
  EXPECT_NEAR(errors[0].mean, (0.2 + 0.4 / 1.5 + 0.5) / 5, 1e-12);
  EXPECT_NEAR(errors[0].bias, (0.2 - 0.4 / 1.5 + 0.5) / 5, 1e-12);
  EXPECT_NEAR(errors[0].worst, 0.5, 1e-12);
  EXPECT_EQ(errors[0].jobs, 2) << "a single plan is no choice";
  EXPECT_NEAR(errors[0].regret_mean, 0.25, 1e-12);
  EXPECT_NEAR(errors[0].regret_median, 0.25, 1e-12);
  EXPECT_NEAR(errors[0].regret_worst, 0.5, 1e-12);
  EXPECT_EQ(errors[1].jobs, 0);
  EXPECT_NEAR(errors[1].bias, -0.25, 1e-12);
}

}  // namespace
}  // namespace piper
