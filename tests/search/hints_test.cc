// A hint is what a trial said: never slower, and never too large where the schedule fits.
#include "search/hints.h"

#include <gtest/gtest.h>

#include "cost/load_cluster.h"
#include "model/load_model.h"
#include "must.h"
#include "schedule/schedule_text.h"

namespace piper::search_cases {
namespace {

/// What is asked for a pipeline of four ranks that idle much, if every other schedule takes this share of its time.
struct Asked {
  std::vector<Hint> hints;
  std::vector<std::string> tried;
};
Asked ask(double share, bool fits, bool others_fit) {
  const auto model =
      std::make_shared<const ModelGraph>(must(load_model(std::string(PIPER_SOURCE_DIR) + "/examples/moe.toml")));
  const Cluster cluster = must(load_cluster("h100"));
  const Schedule schedule = must(parse_schedule(make_source("a.piper", R"(
    mesh(pp=4, dp=2)
    split(batch, parts=4, as=mb)
    place({}, along=pp, stages=4)
    replicate({}, along=dp, zero=1)
    use gpipe(stages=stage, microbatches=mb))")));
  CompileOptions options;
  options.cluster = cluster;
  const Compiled compiled = must(compile(model, schedule, options));
  const StepReport report = step_report(*model, compiled.plan, cluster, must(simulate(compiled.plan, cluster)));
  Asked out;
  out.hints = hints({schedule, compiled, cluster, report, fits}, [&](const Schedule& other) -> Result<TriedStep> {
    out.tried.push_back(print(other));
    return TriedStep{share * report.seconds, others_fit};
  });
  return out;
}

TEST(Hints, AreOnlyWhatWasFasterWhenItWasTried) {
  const Asked faster = ask(0.9, true, true), slower = ask(1.1, true, true), alike = ask(0.995, true, true);
  ASSERT_EQ(faster.hints.size(), 1u) << "within a node every order of axes is as good";
  EXPECT_EQ(faster.tried, slower.tried);
  EXPECT_NE(faster.tried[0].find("use " + std::get<Use>(faster.hints[0].instead.back().body).timeline),
            std::string::npos);
  EXPECT_TRUE(slower.hints.empty());
  EXPECT_TRUE(alike.hints.empty());
}

TEST(Hints, FitWhereTheScheduleDoes) {
  EXPECT_TRUE(ask(0.9, true, false).hints.empty());
  EXPECT_EQ(ask(0.9, false, false).hints.size(), 1u);
}

}  // namespace
}  // namespace piper::search_cases
