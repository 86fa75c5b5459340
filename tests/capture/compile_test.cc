// What is captured compiles like any other model, under every kind of schedule.
#include <gtest/gtest.h>

#include "capture/zoo.h"
#include "compile/compile.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

struct Case {
  std::string name, schedule;
  bool experts = false;  // needs a mixture
};
void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

std::vector<Case> cases() {
  const std::string two = "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\n";
  return {
      {"one_device", "devices(1)\nplace({}, devices=[0])\n"},
      {"one_f_one_b", two + "use 1f1b(stages=stage, microbatches=mb)\n"},
      {"zero_bubble", two + "use zb-h1(stages=stage, microbatches=mb)\n"},
      {"zero_3",
       "devices(2)\nsplit(batch, parts=4, as=mb)\nplace({}, devices=[0, 1])\nreplicate({}, devices=[0, 1], zero=3)\n"},
      {"dualpipev",
       "mesh(pp=2)\nsplit(batch, parts=8, as=mb)\nplace({}, along=pp, stages=4, shape=v)\n"
       "use dualpipev(stages=stage, microbatches=mb)\n"},
      {"experts",
       "mesh(dp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=1)\n"
       "shard({experts=*}, along=dp)\n",
       true},
      {"dualpipev_experts",
       "mesh(pp=2, dp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=4, shape=v)\n"
       "replicate({}, along=dp, zero=1)\nshard({experts=*}, along=dp)\nuse dualpipev(stages=stage, microbatches=mb)\n",
       true},
  };
}

class Compiles : public testing::TestWithParam<Case> {};

TEST_P(Compiles, EveryModel) {
  auto schedule = parse_schedule(make_source(GetParam().name, GetParam().schedule));
  ASSERT_TRUE(schedule) << render(schedule.error());
  for (zoo::Named named : zoo::all()) {
    const bool mixture = named.config.mixture != zoo::Mixture::None;
    if (GetParam().experts && !mixture) continue;
    named.config.layers = 4;
    const CapturedModel captured = zoo::captured(named.config);
    EXPECT_TRUE(captured.unshardable().empty());
    auto compiled = compile(captured.graph(), *schedule);
    EXPECT_TRUE(compiled) << named.name << ": " << render(compiled.error());
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, Compiles, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace piper
