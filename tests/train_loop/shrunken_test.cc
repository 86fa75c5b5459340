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

std::string pipeline(int pp, int dp, int zero, const std::string& use, const std::string& shape = "loop",
                     int stages = 0) {
  return fmt::format(
      "mesh(pp={}, dp={})\nsplit(batch, parts=4, as=mb)\nplace({{}}, along=pp, stages={}, shape={})\n"
      "replicate({{}}, along=dp, zero={}, bucket=1KB)\nuse {}(stages=stage, microbatches=mb)\n",
      pp, dp, stages > 0 ? stages : pp, shape, zero, use);
}

std::vector<Shrunken> shrunken_steps() {
  return {
      {"half_of_a_stage", "dense", pipeline(2, 2, 0, "1f1b"), {3}},
      {"both_stages", "tied", pipeline(2, 2, 1, "1f1b"), {0, 3}},
      {"three_of_four", "dense", pipeline(2, 4, 2, "1f1b"), {6}},
      {"zero_bubble", "tied", pipeline(2, 4, 3, "zb-h1"), {1}},
      {"two_way", "dense", pipeline(2, 2, 1, "dualpipe", "two_way"), {1}},
      {"no_replica", "tied", pipeline(4, 1, 0, "1f1b"), {2}},
      {"a_whole_stage", "dense", pipeline(2, 2, 1, "dualpipev", "v", 4), {2, 3}},
      {"replicas_alone",
       "dense",
       "mesh(dp=4)\nsplit(batch, parts=4, as=mb)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=1, bucket=1KB)\n",
       {2}},
  };
}

class ShrunkenStep : public testing::TestWithParam<Shrunken> {};

TEST_P(ShrunkenStep, EqualsOneDevice) {
  const Shrunken& of = GetParam();
  const Subject subject{of.kind, 4};
  const Cluster cluster;
  const Schedule before = must(parse_schedule(make_source("before", of.schedule)));
  const Schedule after = must(shrink({before, captured(subject, {1, 2, 4}).graph(), cluster, {}}, of.lost)).schedule;
  SCOPED_TRACE(print(after));
  const Trained run = train(model_of(subject), print(after), usual_settings(subject));
  for (const int device : of.lost) EXPECT_FALSE(run.bits.contains(device)) << "device " << device << " is lost";
  EXPECT_TRUE(run.copies_equal);
  const Difference worst = compare(run, reference(subject, of.slices));
  EXPECT_LE(worst.error, 1e-12) << worst.where;
  for (size_t d = 0; d < run.peak_bytes.size(); ++d) EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << d;
}
INSTANTIATE_TEST_SUITE_P(All, ShrunkenStep, testing::ValuesIn(shrunken_steps()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace piper
