// Experts without slots, under every way to train them, divided among devices or not: one device's numbers, and no more
// memory than was planned, however the router chooses.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "every.h"
#include "train_loop/tp_cases.h"
#include "train_loop/wrappers.h"

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
      if (issue == Issue::Serial) {
        EXPECT_EQ(run.peak_bytes[d], run.serial_bytes[d]) << d;
      }
    }
  }
}

class DroplessTraining : public testing::TestWithParam<TpCase> {};

TEST_P(DroplessTraining, EqualsOneDevice) {
  expect_equal_as_planned(GetParam(), model_of(GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Some, DroplessTraining, testing::ValuesIn(every(3, dropless_cases())),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Thorough, DroplessTraining, testing::ValuesIn(dropless_cases()),
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

// ---- experts divided among devices: rows travel, as many as chose them

/// Of every kind one, and the others.
std::vector<TpCase> divided_cases(bool others) {
  const std::set<std::string> first = {"few", "bias", "zero3", "1f1b", "zb_h1", "with_tp"};
  std::vector<TpCase> out;
  const std::string few = "shard({experts=*}, along=ep, buffer=0.25)\n", usual = "shard({experts=*}, along=ep)\n";
  const auto add = [&](const std::string& name, const std::string& model, int devices, int slices,
                       const std::string& schedule, int microbatches = 4) {
    out.push_back({name, model, devices, slices, schedule, microbatches});
  };
  const std::string copies = whole + "replicate({}, along=ep)\n";
  add("usual", "dropless", 2, 4, "mesh(ep=2)\n" + copies + usual, 2);
  add("few", "dropless", 2, 4, "mesh(ep=2)\n" + copies + few, 2);
  add("bias", "dropless_bias", 2, 4, "mesh(ep=2)\n" + copies + few, 2);
  add("reference_on_four", "dropless_reference", 4, 4, "mesh(ep=4)\n" + copies + few, 1);
  for (const int zero : {1, 2, 3})
    add(fmt::format("zero{}", zero), "dropless", 4, 8,
        "mesh(dp=2, ep=2)\n" + whole + fmt::format("replicate({{}}, along=[dp, ep], zero={}, bucket=1KB)\n", zero) +
            few,
        2);
  const auto piped = [&](const std::string& timeline, const std::string& more = "") {
    const bool v = timeline == "dualpipev" || timeline == "zb-v";
    std::string name = timeline;
    std::replace(name.begin(), name.end(), '-', '_');
    add(name, "dropless", 4, 8,
        fmt::format("mesh(pp=2, ep=2)\nplace({{}}, along=pp, stages={}{})\nreplicate({{}}, along=ep, zero=2)\n",
                    v ? 4 : 2, v ? ", shape=v" : "") +
            few + more + fmt::format("use {}(stages=stage, microbatches=mb)\n", timeline));
  };
  piped("gpipe", "recompute({layer=*})\n");
  piped("1f1b", "recompute({experts=*})\n");
  piped("zb-h1");
  piped("dualpipev");
  add("beside_tp", "dropless", 4, 4, "mesh(ep=2, tp=2)\n" + copies + few + "shard({layer=*, experts=none}, along=tp)\n",
      2);
  add("with_tp", "dropless", 4, 4, "mesh(ep=2, tp=2)\n" + copies + few + tensor_parallel, 2);
  std::erase_if(out, [&](const TpCase& c) { return first.contains(c.name) == others; });
  return out;
}

void expect_equal_divided(const TpCase& c, const TrainableModel& model) {
  SCOPED_TRACE(c.text());
  const Trained expected = train(model, in_turn(c.slices), settings(c));
  for (const Issue issue : {Issue::Serial, Issue::Ahead}) {
    TrainSettings how = settings(c);
    how.job.run.issue = issue;
    const Trained run = train(model, c.text(), how);
    EXPECT_EQ(run.devices, c.devices);
    EXPECT_THAT(complaints(run, expected, 1e-12), testing::IsEmpty());
    for (size_t d = 0; d < run.peak_bytes.size(); ++d) EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << d;
  }
}

class DroplessDivided : public testing::TestWithParam<TpCase> {};

TEST_P(DroplessDivided, EqualsOneDevice) {
  expect_equal_divided(GetParam(), model_of(GetParam()));
}
INSTANTIATE_TEST_SUITE_P(All, DroplessDivided, testing::ValuesIn(divided_cases(false)),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Long, DroplessDivided, testing::ValuesIn(divided_cases(true)),
                         [](const auto& info) { return info.param.name; });

/// A router of zeros sends all tokens to two experts, which one device has; a large one most of them to a few.
TEST(DroplessDividedRouting, ChangesNoMemory) {
  for (const auto& [buffer, scale] : std::vector<std::pair<std::string, double>>{{"0.25", 0}, {"2", 0}, {"0.3", 20}}) {
    const TpCase c{"",
                   "dropless",
                   2,
                   2,
                   "mesh(ep=2)\n" + whole + "replicate({}, along=ep, zero=2, bucket=1KB)\n" +
                       fmt::format("shard({{experts=*}}, along=ep, buffer={})\n", buffer),
                   1};
    TrainableModel model = model_of(c, 2);
    model.initialize = [usual = model.initialize, scale = scale](const std::string& name, at::Tensor& to) {
      usual(name, to);
      if (name.find("router") != std::string::npos) to.mul_(scale);
    };
    expect_equal_divided(c, model);
  }
}

/// One device leaves out the last calls of further rounds, as if it had to make fewer.
class MakesFewerRounds : public PassingCommunicator {
 public:
  MakesFewerRounds(std::unique_ptr<Communicator> to, std::atomic<bool>& left_out)
      : PassingCommunicator(std::move(to)), left_out_(left_out) {}
  void exchange(int group, int64_t sequence, int turn, std::span<const std::span<const std::byte>> out,
                std::span<const std::span<std::byte>> in) override {
    if (device() == 1 && turn > 3) {
      left_out_ = true;
      return;
    }
    PassingCommunicator::exchange(group, sequence, turn, out, in);
  }

 private:
  std::atomic<bool>& left_out_;
};

TEST(DroplessDividedRouting, FewerRoundsOfOneDeviceAreNoticed) {
  const TpCase c{"",
                 "dropless",
                 2,
                 2,
                 "mesh(ep=2)\n" + whole + "replicate({}, along=ep)\nshard({experts=*}, along=ep, buffer=0.25)\n",
                 1};
  TrainSettings how = settings(c);
  std::atomic<bool> left_out = false;
  how.job.timeout = {.least = 1, .first = 1};
  how.job.share_progress = shown_when([&](const std::vector<DeviceProgress>&) { return left_out.load(); });
  how.communicator = [&](std::unique_ptr<Communicator> to) {
    return std::make_unique<MakesFewerRounds>(std::move(to), left_out);
  };
  try {
    train(model_of(c, 1), c.text(), how);
    FAIL() << "the step ended";
  } catch (const std::exception& problem) {
    EXPECT_THAT(problem.what(), testing::HasSubstr("rounds"));
  }
}

}  // namespace
}  // namespace piper
