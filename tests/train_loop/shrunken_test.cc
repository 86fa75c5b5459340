// Devices are lost, and what goes on without them computes what one device computes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "must.h"
#include "recover/shrink.h"
#include "schedule/schedule_text.h"
#include "train_loop/subjects.h"

namespace piper {
namespace {

struct Shrunken {
  std::string name, kind, schedule;
  DeviceList lost;
  int64_t slices = 4;  // of the reference
};
void PrintTo(const Shrunken& shrunken, std::ostream* out) {
  *out << shrunken.name;
}

std::string pipeline_before(int pp, int dp, int zero, const std::string& use, const std::string& shape = "loop",
                            int stages = 0) {
  return fmt::format(
      "mesh(pp={}, dp={})\nsplit(batch, parts=4, as=mb)\nplace({{}}, along=pp, stages={}, shape={})\n"
      "replicate({{}}, along=dp, zero={}, bucket=1KB)\nuse {}(stages=stage, microbatches=mb)\n",
      pp, dp, stages > 0 ? stages : pp, shape, zero, use);
}

std::vector<Shrunken> shrunken_steps() {
  return {
      {"half_of_a_stage", "dense", pipeline_before(2, 2, 0, "1f1b"), {3}},
      {"both_stages", "tied", pipeline_before(2, 2, 1, "1f1b"), {0, 3}},
      {"three_of_four", "dense", pipeline_before(2, 4, 2, "1f1b"), {6}},
      {"zero_bubble", "tied", pipeline_before(2, 4, 3, "zb-h1"), {1}},
      {"two_way", "dense", pipeline_before(2, 2, 1, "dualpipe", "two_way"), {1}},
      {"no_replica", "tied", pipeline_before(4, 1, 0, "1f1b"), {2}},
      {"a_whole_stage", "dense", pipeline_before(2, 2, 1, "dualpipev", "v", 4), {2, 3}},
      {"replicas_alone",
       "dense",
       "mesh(dp=4)\nsplit(batch, parts=4, as=mb)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=1, bucket=1KB)\n",
       {2}},
  };
}

/// The same with directives behind those that place.
std::string with(std::string schedule, const std::string& line) {
  return schedule.insert(schedule.find("replicate("), line + "\n");
}

std::vector<Shrunken> lost_by_hand() {
  const std::string lists =
      "devices(5)\nsplit(batch, parts=4, as=mb)\nplace({embed=*}, devices=[0, 1], stage=0)\n"
      "place({layer=0..1}, devices=[0, 1], stage=0)\nplace({layer=2..3}, devices=[2..4], stage=1)\n"
      "place({head=*}, devices=[2..4], stage=1)\nlose(devices=[3], replicas=1)\n"
      "replicate({embed=*}, devices=[0, 1])\nreplicate({layer=0..1}, devices=[0, 1])\n"
      "replicate({layer=2..3}, devices=[2..4], zero=1)\nreplicate({head=*}, devices=[2..4], zero=1)\n"
      "use 1f1b(stages=stage, microbatches=mb)\n";
  return {
      {"turns", "dense", with(pipeline_before(2, 4, 0, "1f1b"), "lose(devices=[6], along=dp, replicas=1)"), {6}},
      {"turns_of_pieces",
       "tied",
       with(pipeline_before(2, 4, 3, "zb-h1"), "lose(devices=[1], along=dp, replicas=1)"),
       {1}},
      {"one_idle", "dense", with(pipeline_before(2, 4, 2, "1f1b"), "lose(devices=[5], along=dp, replicas=2)"), {5}},
      {"first_device", "dense", with(pipeline_before(2, 2, 1, "1f1b"), "lose(devices=[0], along=dp)"), {0}},
      {"both_ways", "dense", with(pipeline_before(2, 2, 1, "dualpipe", "two_way"), "lose(devices=[1], along=dp)"), {1}},
      {"lists", "dense", lists, {3}},
  };
}

/// What is trained: no lost device has a part in it, and the losses and weights are those of one device.
void expect_one_device(const Shrunken& of, const std::string& schedule) {
  SCOPED_TRACE(schedule);
  const Subject subject{of.kind, 4};
  const Trained run = train(model_of(subject), schedule, usual_settings(subject));
  for (const int device : of.lost) EXPECT_FALSE(run.bits.contains(device)) << "device " << device << " is lost";
  EXPECT_TRUE(run.copies_equal);
  const Difference worst = compare(run, reference(subject, of.slices));
  EXPECT_LE(worst.error, 1e-12) << worst.where;
  for (size_t d = 0; d < run.peak_bytes.size(); ++d) EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << d;
}

class LostByHand : public testing::TestWithParam<Shrunken> {};

TEST_P(LostByHand, EqualsOneDevice) {
  expect_one_device(GetParam(), GetParam().schedule);
}
INSTANTIATE_TEST_SUITE_P(All, LostByHand, testing::ValuesIn(lost_by_hand()),
                         [](const auto& info) { return info.param.name; });

class ShrunkenStep : public testing::TestWithParam<Shrunken> {};

TEST_P(ShrunkenStep, EqualsOneDevice) {
  const Shrunken& of = GetParam();
  const Cluster cluster;
  const Schedule before = must(parse_schedule(make_source("before", of.schedule)));
  const CapturedModel& model = captured({of.kind, 4}, {1, 2, 4});
  expect_one_device(of, print(must(shrink({before, model.graph(), cluster, {}}, of.lost)).schedule));
}
INSTANTIATE_TEST_SUITE_P(All, ShrunkenStep, testing::ValuesIn(shrunken_steps()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace piper
