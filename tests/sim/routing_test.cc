// How tokens choose experts: what the busiest device gets follows from skew and buffer, and costs time, never memory.
#include "sim/routing.h"

#include <gtest/gtest.h>

#include "compile/compile.h"
#include "cost/load_cluster.h"
#include "model/analytic/analytic_model.h"
#include "model/analytic/config_file.h"
#include "must.h"
#include "schedule/schedule_text.h"
#include "sim/simulate.h"

namespace piper {
namespace {

TEST(Routing, IsReadOrRefused) {
  EXPECT_EQ(must(parse_routing("balanced")).skew, 0);
  EXPECT_EQ(must(parse_routing("zipf:1.2")).skew, 1.2);
  for (const char* wrong : {"", "zipf", "zipf:", "zipf:-1", "zipf:11", "zipf:1.2x", "zip:1"})
    EXPECT_FALSE(parse_routing(wrong)) << wrong;
}

/// Rows are conserved: what does not fit into the first round goes in further ones.
TEST(Routing, BusiestDeviceHasWhatItsBufferHasNoRoomFor) {
  const sim::RowLoad usual = sim::row_load(8, 64, one_load + one_load / 2, {});
  EXPECT_EQ(usual.first, 1);
  EXPECT_EQ(usual.further, 0);
  EXPECT_EQ(usual.rounds, 1);
  const sim::RowLoad few = sim::row_load(8, 64, one_load / 4, {});
  EXPECT_EQ(few.first, 0.25);
  EXPECT_EQ(few.further, 0.75);
  EXPECT_EQ(few.rounds, 4);
  double before = 1;
  for (const double skew : {0.5, 1.0, 2.0}) {
    const sim::RowLoad roomy = sim::row_load(8, 64, 8 * one_load, {skew}),
                       tight = sim::row_load(8, 64, one_load, {skew});
    EXPECT_EQ(roomy.further, 0);
    EXPECT_NEAR(roomy.first, tight.first + tight.further, 1e-9);
    EXPECT_GT(roomy.first, before);
    before = roomy.first;
  }
  EXPECT_NEAR(sim::row_load(2, 2, 8 * one_load, {10}).first, 2, 1e-2);  // one expert gets nearly all
}

/// Loads of a run, on devices that hold experts in their order: the mean of the busiest.
TEST(Routing, IsWhatHappened) {
  Routing traced;
  traced.traced = {{0.25, 0.25, 0.25, 0.25}, {0.125, 0.125, 0.5, 0.25}};
  EXPECT_FALSE(traced.balanced());
  const sim::RowLoad load = sim::row_load(2, 4, one_load, traced);
  EXPECT_EQ(load.first, 1);
  EXPECT_EQ(load.further, 0.25);  // 0 and 0.5
  EXPECT_EQ(load.rounds, 2);
}

/// One layer of experts on four devices.
TEST(Routing, SkewCostsTimeAndMoreWhereBuffersAreSmaller) {
  const SourceFilePtr config =
      make_source("config.toml",
                  "[model]\narch = \"qwen3-moe\"\nhidden = 1024\nlayers = 2\nheads = 8\nvocab = "
                  "1024\nexperts = 16\ntop_k = 2\nmoe_ffn = 2048\ndropless = true\n"
                  "[step]\nbatch = 16\nsequence = 1024\n");
  CompileOptions options;
  options.cluster = must(load_cluster("h100"));
  const auto seconds = [&](const std::string& buffer, double skew) {
    const Schedule schedule = must(parse_schedule(make_source(
        "s.piper", "mesh(ep=4)\nplace({}, mesh={})\nreplicate({}, along=ep)\nshard({experts=*}, along=ep, buffer=" +
                       buffer + ")\n")));
    const ConfigFile file = must(parse_config(config));
    const auto model =
        std::make_shared<const ModelGraph>(must(analytic_model(file.model, resolve(file.step, file.model))));
    const Plan plan = must(compile(model, schedule, options)).plan;
    SimOptions how;
    how.routing.skew = skew;
    return must(simulate(plan, options.cluster, nullptr, how)).seconds;
  };
  const double balanced = seconds("1.5", 0), roomy = seconds("4", 1.2), tight = seconds("1", 1.2);
  EXPECT_EQ(balanced, seconds("4", 0));  // room that is not needed costs no time
  EXPECT_GT(roomy, 1.05 * balanced);
  EXPECT_GT(tight, roomy);
}

}  // namespace
}  // namespace piper
