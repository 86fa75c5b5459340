// Schedules from C++: each call is the directive of the same name, and the text form reads it back.
#include "schedule/builder.h"

#include <gtest/gtest.h>

#include "schedule/schedule_text.h"

namespace piper {
namespace {

void expect_text(const ScheduleBuilder& builder, const std::string& text) {
  EXPECT_EQ(print(builder.build()), text);
  auto parsed = parse_schedule(make_source("t", text));
  ASSERT_TRUE(parsed) << render(parsed.error());
  EXPECT_EQ(*parsed, builder.build());
  auto checked = builder.checked();
  ASSERT_TRUE(checked) << render(checked.error());
  EXPECT_EQ(*checked, builder.build());
}

TEST(Builder, TheExampleOfTheHeader) {
  ScheduleBuilder build;
  build.mesh({{"pp", 2}, {"dp", 4}})
      .split({.parts = 8})
      .place({.devices = along("pp"), .stages = 4, .shape = StageShape::V})
      .replicate({.devices = along("dp"), .zero = 1})
      .shard({.what = where("experts"), .devices = along("dp")})
      .use({.timeline = "dualpipev"});
  expect_text(build,
              "mesh(pp=2, dp=4)\n"
              "split(batch, parts=8, as=mb)\n"
              "place({}, along=pp, stages=4, shape=v)\n"
              "replicate({}, along=dp, zero=1)\n"
              "shard({experts=*}, along=dp)\n"
              "use dualpipev(stages=stage, microbatches=mb)\n");
}

TEST(Builder, EveryOption) {
  ScheduleBuilder build;
  build.devices(8)
      .split({.parts = 2})
      .place({.what = where("layer", 0, 3), .devices = on({0, 1}), .stream = "main", .transfers = "nvlink"})
      .place({.what = where("layer", {4, 6}), .devices = at(where("pp", 0))})
      .place({.what = where("head", 0),
              .devices = along("pp"),
              .stages = 3,
              .at = {1, 4},
              .shape = StageShape::TwoWay,
              .as = "part"})
      .replicate({.devices = on_each({{0, 1}, {2, 3}}),
                  .zero = 3,
                  .bucket = 1'000'000,
                  .gather_stream = "g",
                  .reduce_stream = "r",
                  .release = Release::Pass})
      .replicate({.devices = along("edp", "ep"), .release = Release::Step})
      .shard({.what = where("experts"), .devices = along("ep"), .stream = "all_to_all"})
      .shard({.what = where("layer"),
              .devices = along("tp"),
              .parameters = {{"*.wo", 1}},
              .vocabulary = true,
              .sequence = Sequence::On,
              .regather = true})
      .recompute({.what = where("layer")})
      .precision({.what = where("layer")})
      .prefetch({.what = everything().comm("gather"), .distance = 2})
      .prefetch({.what = everything().comm("gather"), .distance = std::nullopt})
      .order({where("mb", 0).pass("F"),
              overlapped({where("mb", 1).pass("F"), where("mb", 0).and_("layer", 0, 3).outside("left").pass("B")})})
      .use({.timeline = "zb-1p", .stages = "part", .microbatches = "MB", .group = 2, .memory_limit = 5})
      .use({.timeline = "list", .backward = Backward::Whole})
      .use({.timeline = "file", .file = "zb.csv"});
  expect_text(
      build,
      "devices(8)\n"
      "split(batch, parts=2, as=mb)\n"
      "place({layer=0..3}, devices=[0, 1], stream=main, transfers=nvlink)\n"
      "place({layer=[4, 6]}, mesh={pp=0})\n"
      "place({head=0}, along=pp, stages=3, at=[1, 4], shape=two_way, as=part)\n"
      "replicate({}, devices=[0, 1] | [2, 3], zero=3, bucket=1MB, gather_stream=g, reduce_stream=r, release=pass)\n"
      "replicate({}, along=[edp, ep], zero=0, release=step)\n"
      "shard({experts=*}, along=ep, stream=all_to_all)\n"
      "shard({layer=*}, along=tp, parameters=\"*.wo: 1\", vocabulary=on, sequence=on, regather=on)\n"
      "recompute({layer=*})\n"
      "precision({layer=*}, matmul=float8)\n"
      "prefetch({comm=gather}, distance=2)\n"
      "prefetch({comm=gather}, distance=all)\n"
      "order({mb=0, pass=F}, [{mb=1, pass=F}, {mb=0, layer=0..3, left=none, pass=B}])\n"
      "use \"zb-1p\"(stages=part, microbatches=MB, group=2, memory_limit=5)\n"
      "use list(stages=stage, microbatches=mb, backward=whole)\n"
      "use file(zb.csv, stages=stage, microbatches=mb)\n");
}

TEST(Builder, OrdersFromALoop) {
  std::vector<OrderStep> steps;
  for (int mb = 0; mb < 3; ++mb) steps.push_back(where("mb", mb).pass("F"));
  ScheduleBuilder build;
  build.order(steps);
  expect_text(build, "order({mb=0, pass=F}, {mb=1, pass=F}, {mb=2, pass=F})\n");
}

TEST(Builder, SelectionsAreValues) {
  const Selection stage = where("stage", 1);
  const Filter forward = stage.pass("F"), backward = stage.pass("B");
  EXPECT_EQ(print(Filter(stage)), "{stage=1}");
  EXPECT_EQ(print(forward), "{stage=1, pass=F}");
  EXPECT_EQ(print(backward), "{stage=1, pass=B}");
}

TEST(Builder, CheckedRefusesWhatAFileWouldRefuse) {
  auto bad = ScheduleBuilder().devices(1).replicate({.devices = on({0}), .zero = 7}).checked();
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ErrorCode::E105);
  EXPECT_EQ(position_of(bad.error().where).line, 2);
  EXPECT_FALSE(ScheduleBuilder().split({.parts = 0}).checked());
  EXPECT_FALSE(ScheduleBuilder().place({.devices = on({})}).checked());
  EXPECT_FALSE(ScheduleBuilder().place({.what = where("layer", 3, 1), .devices = on({0})}).checked());
  EXPECT_FALSE(ScheduleBuilder().order({everything()}).checked());
  EXPECT_FALSE(ScheduleBuilder().checked());
}

}  // namespace
}  // namespace piper
