// Published throughput against the simulator's: the settings of examples/published. Prints the errors that
// docs/published.md states.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compile/compile.h"
#include "cost/load_cluster.h"
#include "model/load_model.h"
#include "must.h"
#include "schedule/load_schedule.h"
#include "sim/step_report.h"

namespace piper {
namespace {

const std::string folder = std::string(PIPER_SOURCE_DIR) + "/examples/published/";

StepReport report_of(const std::string& model_name, const std::string& schedule, const std::string& cluster_name,
                     const StepOverrides& step) {
  CompileOptions options;
  options.cluster = must(load_cluster(cluster_name));
  const auto model = std::make_shared<const ModelGraph>(must(load_model(model_name, step)));
  const Compiled compiled = must(compile(model, must(load_schedule(folder + schedule)), options));
  return step_report(*model, compiled.plan, options.cluster, must(simulate(compiled.plan, options.cluster)));
}

/// `predicted` is off by this share of `published`; says so.
double error_of(const std::string& what, double predicted, double published) {
  const double error = predicted / published - 1;
  fmt::print("{:<42} published {:>7.4g}  simulated {:>7.4g}  error {:>+6.1f} %\n", what, published, predicted,
             100 * error);
  return std::abs(error);
}

StepOverrides step_of(int64_t batch, int64_t sequence) {
  StepOverrides step;
  step.batch = batch;
  step.sequence = sequence;
  return step;
}

TEST(Published, Qwen3MixtureOfOneBillion) {
  const auto tokens = [](const std::string& schedule) {
    return report_of("analytic:Piper-qwen3_1b", schedule, "a100-40", step_of(128, 512)).tokens_per_second;
  };
  const double plain = tokens("qwen3_1b_1f1b.piper"), interleaved = tokens("qwen3_1b_interleaved.piper"),
               dual = tokens("qwen3_1b_dualpipev.piper");
  EXPECT_LT(plain, interleaved);
  EXPECT_LT(interleaved, dual);
  EXPECT_LT(error_of("1 B: DualPipeV over 1F1B", dual / plain, 1.13), 0.06);
}

TEST(Published, Qwen3MixtureOfNineBillion) {
  const auto tokens = [](const std::string& schedule) {
    return report_of("analytic:Piper-qwen3_9b", schedule, "a100-40", step_of(64, 2048)).tokens_per_second;
  };
  const double plain = tokens("qwen3_9b_1f1b.piper"), interleaved = tokens("qwen3_9b_interleaved.piper"),
               dual = tokens("qwen3_9b_dualpipev.piper");
  EXPECT_LT(plain, interleaved);
  EXPECT_LT(interleaved, dual);
  EXPECT_LT(error_of("9 B: interleaved over 1F1B", interleaved / plain, 1.05), 0.06);
  EXPECT_LT(error_of("9 B: DualPipeV over interleaved", dual / interleaved, 1.10), 0.06);
}

/// Teraflops per GPU as the paper counts them: with recomputation, of which MFU knows nothing.
TEST(Published, MegatronOn384Gpus) {
  const StepReport report =
      report_of("analytic:GPT-3-175B", "gpt_175b.piper", folder + "dgx_as_one_device.toml", step_of(1536, 2048));
  EXPECT_LT(error_of("GPT 175 B: teraflops per GPU", report.mfu * 4 / 3 * 312, 153), 0.25);
}

}  // namespace
}  // namespace piper
