// Experts without slots, under every way to train them: one device's numbers, and the memory that was planned, however
// the router chooses.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/schedule_text.h"
#include "train_loop/tp_cases.h"

namespace piper {
namespace {

std::vector<TpCase> dropless_cases() {
  std::vector<TpCase> out;
  for (const int zero : {0, 1, 2, 3})
    out.push_back({fmt::format("zero{}", zero), zero % 2 ? "dropless_bias" : "dropless", 2, 4,
                   "mesh(dp=2)\n" + whole + fmt::format("replicate({{}}, along=dp, zero={}, bucket=1KB)\n", zero), 2});
  const auto piped = [&](const std::string& model, const std::string& timeline, const std::string& more = "") {
    const bool v = timeline == "dualpipev" || timeline == "zb-v";
    std::string name = timeline + (more.empty() ? "" : "_more");
    std::replace(name.begin(), name.end(), '-', '_');
    out.push_back({name, model, 2, 4,
                   fmt::format("mesh(pp=2)\nplace({{}}, along=pp, stages={}{})\n", v ? 4 : 2, v ? ", shape=v" : "") +
                       more + fmt::format("use {}(stages=stage, microbatches=mb)\n", timeline)});
  };
  piped("dropless", "gpipe", "recompute({layer=*})\n");
  piped("dropless", "1f1b", "recompute({experts=*})\n");
  piped("dropless_bias", "zb-h1");
  piped("dropless_reference", "zb-v");
  piped("dropless", "dualpipev");
  out.push_back({"together", "dropless", 4, 8,
                 "mesh(pp=2, dp=2)\nplace({}, along=pp, stages=4, shape=v)\n"
                 "replicate({}, along=dp, zero=2, bucket=1KB)\nrecompute({layer=1})\n"
                 "use dualpipev(stages=stage, microbatches=mb)\n"});
  out.push_back(
      {"float32", "dropless", 2, 4, "mesh(dp=2)\n" + whole + "replicate({}, along=dp, zero=1)\n", 2, DType::Float32});
  return out;
}

void expect_equal_as_planned(const TpCase& c, const TrainableModel& model) {
  SCOPED_TRACE(c.text());
  const Trained expected = train(model, in_turn(c.slices), settings(c));
  const double tolerance = c.dtype == DType::Float64 ? 1e-12 : 1e-5;
  for (const Issue issue : {Issue::Serial, Issue::Ahead}) {
    TrainSettings how = settings(c);
    how.job.run.issue = issue;
    const Trained run = train(model, c.text(), how);
    EXPECT_EQ(run.devices, c.devices);
    EXPECT_THAT(complaints(run, expected, tolerance), testing::IsEmpty());
    for (size_t d = 0; d < run.peak_bytes.size(); ++d) {
      EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << d;
      if (issue == Issue::Serial) EXPECT_EQ(run.peak_bytes[d], run.serial_bytes[d]) << d;
    }
  }
}

class DroplessTraining : public testing::TestWithParam<TpCase> {};

TEST_P(DroplessTraining, EqualsOneDevice) {
  expect_equal_as_planned(GetParam(), model_of(GetParam()));
}
INSTANTIATE_TEST_SUITE_P(All, DroplessTraining, testing::ValuesIn(dropless_cases()),
                         [](const auto& info) { return info.param.name; });

/// A router of zeros sends all tokens to the same experts, a large one most of them to a few.
TEST(DroplessRouting, ChangesNoMemory) {
  const TpCase c{"", "dropless", 2, 4, "mesh(dp=2)\n" + whole + "replicate({}, along=dp, zero=2, bucket=1KB)\n", 2};
  for (const double scale : {0.0, 100.0}) {
    TrainableModel model = model_of(c);
    model.initialize = [usual = model.initialize, scale](const std::string& name, at::Tensor& to) {
      usual(name, to);
      if (name.find("router") != std::string::npos) to.mul_(scale);
    };
    expect_equal_as_planned(c, model);
  }
}

/// Devices that would divide experts have nothing to divide, and are told what to do instead.
TEST(DroplessRouting, StaysOnItsDevice) {
  const TpCase c{"", "dropless", 2, 2, ""};
  const auto parsed = parse_schedule(
      make_source("s.piper", "mesh(ep=2)\n" + whole + "replicate({}, along=ep)\nshard({experts=*}, along=ep)\n"));
  const auto refused = prepare_training(model_of(c), *parsed);
  ASSERT_FALSE(refused);
  EXPECT_THAT(render(refused.error()), testing::AllOf(testing::HasSubstr("E308"), testing::HasSubstr("dropless"),
                                                      testing::HasSubstr("capacity_factor")));
}

}  // namespace
}  // namespace piper
