// Published bubbles, out of compiled plans: the compiler's orders and the simulator's clock together.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "model/model_text.h"
#include "property/random.h"
#include "schedule/schedule_text.h"
#include "sim/simulate.h"

namespace piper {
namespace {

struct Sizes {
  int ranks, stages_per_rank, microbatches;
  int forward, input, weight;  // nanoseconds of a stage

  int stages() const { return ranks * stages_per_rank; }
};

/// The update of a stage's one parameter: 16 operations.
constexpr int update = 16;

/// One layer per stage, all alike. Messages and memory cost nothing.
std::string model_text(const Sizes& s) {
  std::string text = fmt::format("model chain\nstep batch={} sequence=1\ninput x.0 float32 [b, 1]\n", s.microbatches);
  for (int i = 0; i < s.stages(); ++i) {
    const bool last = i + 1 == s.stages();
    text += fmt::format("{} x.{} float32 {}\n", last ? "loss" : "value", i + 1, last ? "[]" : "[b, 1]");
    if (i > 0) text += fmt::format("value d.{} float32 [b, 1]\n", i);
    text += fmt::format("parameter w.{} float32 [1]\n", i);
  }
  for (int i = 0; i < s.stages(); ++i) {
    const std::string given = i + 1 == s.stages() ? "" : fmt::format(", d.{}", i + 1);
    const std::string out = i == 0 ? "" : fmt::format("d.{}", i);
    text += fmt::format("chunk layer.{0} {{layer={0}}}\n  F (x.{0}) -> (x.{1}) parameters(w.{0}) flops={2}*b\n", i,
                        i + 1, s.forward);
    text += fmt::format("  B (x.{0}{1}) -> ({2}) parameters(w.{0}) gradients(w.{0}) flops={3}*b\n", i, given, out,
                        s.input + s.weight);
    text += fmt::format("  BI (x.{0}{1}) -> ({2}) parameters(w.{0}) flops={3}*b\n", i, given, out, s.input);
    text += fmt::format("  BW (x.{0}{1}) -> () gradients(w.{0}) flops={2}*b\n", i, given, s.weight);
  }
  return text;
}

Cluster free_communication() {
  Cluster cluster;
  DeviceKind& kind = cluster.kinds[0];
  kind.peak.fill(1e9);
  kind.memory_bandwidth = 1e30;
  kind.launch = kind.issue = 0;
  cluster.levels[0].bandwidth = 1e30;
  cluster.levels[0].latency = 0;
  return cluster;
}

/// Nanoseconds of a step.
double simulated(const Sizes& s, const std::string& timeline) {
  auto model = parse_model(make_source("model", model_text(s)));
  if (!model) throw std::runtime_error(render(model.error()));
  const std::string text = fmt::format(
      "mesh(pp={})\nsplit(batch, parts={}, as=mb)\nplace({{}}, along=pp, stages={})\nuse {}(stages=stage, "
      "microbatches=mb)\n",
      s.ranks, s.microbatches, s.stages(), timeline);
  CompileOptions options;
  options.cluster = free_communication();
  auto compiled = compile(std::make_shared<const ModelGraph>(*std::move(model)),
                          *parse_schedule(make_source("schedule", text)), options);
  if (!compiled) throw std::runtime_error(render(compiled.error()));
  auto simulation = simulate(compiled->plan, options.cluster);
  if (!simulation) throw std::runtime_error(render(simulation.error()));
  return simulation->seconds * 1e9;
}

TEST(Formulas, HoldForCompiledPlans) {
  property::Random random(5);
  for (int trial = 0; trial < (property::long_run() ? 1000 : 60); ++trial) {
    Sizes s{random.between(1, 6), 1, random.between(1, 16), random.between(1, 20), random.between(1, 20), 0};
    s.weight = random.between(1, 20);
    SCOPED_TRACE(fmt::format("p {} m {} F {} I {} W {}", s.ranks, s.microbatches, s.forward, s.input, s.weight));
    const int p = s.ranks, m = s.microbatches, f = s.forward, i = s.input, w = s.weight;
    const double work = m * (f + i + w);
    EXPECT_NEAR(simulated(s, "gpipe"), work + (p - 1) * (f + i + w) + update, 1e-6);
    EXPECT_NEAR(simulated(s, "1f1b"), work + (p - 1) * (f + i + w) + update, 1e-6);
    if (p > 1 && w <= f && w <= i && m <= p) {  // the zero-bubble paper, appendix H
      EXPECT_NEAR(simulated(s, "zb-h1"), (m + p - 1) * (f + i) + w + update, 1e-6);
    }
    s.stages_per_rank = random.between(2, 3);
    s.microbatches = p * random.between(1, 3);
    if (p > 1) {
      const double all = s.microbatches * s.stages_per_rank * (f + i + w);
      EXPECT_NEAR(simulated(s, "interleaved-1f1b"), all + (p - 1) * (f + i + w) + s.stages_per_rank * update, 1e-6);
    }
  }
}

}  // namespace
}  // namespace piper
