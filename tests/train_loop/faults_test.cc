// What goes wrong in a run ends it everywhere, and the message names the culprit.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <future>
#include <regex>
#include <set>

#include "models/configurations.h"
#include "train/golden_text.h"
#include "train/run_problems.h"
#include "train_loop/trained.h"
#include "train_loop/two_stages.h"
#include "train_loop/wrappers.h"

namespace piper {
namespace {

/// Calls a function when the run is stopped.
class TellsOfTheEnd : public PassingCommunicator {
 public:
  TellsOfTheEnd(std::unique_ptr<Communicator> to, std::function<void()> tell)
      : PassingCommunicator(std::move(to)), tell_(std::move(tell)) {}
  void abort(const std::string& reason) override {
    PassingCommunicator::abort(reason);
    tell_();
  }

 private:
  std::function<void()> tell_;
};

/// The error of a run, as the program prints it; times are replaced by T.
std::string failure_of(const TrainSettings& settings) {
  try {
    train(built(two_stages_config, BuildOn::Meta), two_stages_schedule, settings);
  } catch (const RunError& problem) {
    return std::regex_replace(render(as_diagnostic(problem)), std::regex("[0-9]+\\.[0-9] s"), "T s");
  }
  return "the run ended well";
}

TEST(Faults, AnOperationThatThrows) {
  TrainSettings settings;
  settings.job.run.before_op = [](int device, OpId op) {
    if (device == 1 && op == OpId(4)) throw std::runtime_error("planted");
  };
  expect_golden("E801_operation", failure_of(settings));
}

TEST(Faults, MemoryThatIsNotThere) {
  TrainSettings settings;
  settings.job.run.before_op = [](int device, OpId op) {
    if (device == 1 && op == OpId(4)) throw std::bad_alloc();
  };
  expect_golden("E801_memory", failure_of(settings));
  settings.job.run.before_op = [](int device, OpId op) {
    if (device == 0 && op == OpId(1)) static_cast<void>(at::empty({int64_t{1} << 55}));
  };
  const std::string message = failure_of(settings);
  EXPECT_NE(message.find("error[E801]: device 0: op 1"), std::string::npos) << message;
  EXPECT_EQ(message.find("frame #"), std::string::npos) << message;
}

/// A device that does not go on: the others say what they wait for. It stalls in its last backward, until the run has
/// failed. The watch sees it when everything that could be in progress beside it has ended: what is earlier in progress
/// depends on waits for memory, and those on how much the operators of a machine take.
TEST(Faults, ADeviceThatStalls) {
  constexpr OpId last_backward(14), waits_for_it(12);
  std::promise<void> failed;
  std::atomic<bool> told = false;
  TrainSettings settings;
  settings.job.timeout = {.least = 1, .first = 1};
  settings.job.run.before_op = [&](int device, OpId op) {
    if (device == 1 && op == last_backward) failed.get_future().wait();
  };
  settings.job.share_progress = shown_when([&](const std::vector<DeviceProgress>& devices) {
    std::set<std::pair<int, OpId>> in_progress;
    for (const DeviceProgress& device : devices)
      for (const DeviceProgress::Last& last : device.streams)
        if (last.op.valid() && !last.ended) in_progress.insert({device.device, last.op});
    return in_progress == std::set<std::pair<int, OpId>>{{0, waits_for_it}, {1, last_backward}};
  });
  settings.communicator = [&](std::unique_ptr<Communicator> to) {
    return std::make_unique<TellsOfTheEnd>(std::move(to), [&] {
      if (!told.exchange(true)) failed.set_value();
    });
  };
  expect_golden("E802_stalled", failure_of(settings));
}

/// A rate so large that the second step is not finite any more.
TrainSettings exploding() {
  TrainSettings settings;
  settings.steps = 4;
  settings.optimizer.learning_rate = 1e30;
  settings.optimizer.weight_decay = 0;
  return settings;
}

TEST(Faults, AStepThatIsNotFiniteStopsTheRun) {
  const std::string message = failure_of(exploding());
  EXPECT_NE(message.find("error[E803]"), std::string::npos) << message;
  EXPECT_NE(message.find("step 1 is not finite: loss"), std::string::npos) << message;
  EXPECT_NE(message.find("no weight was changed by this step"), std::string::npos) << message;
}

TEST(Faults, AStepThatIsNotFiniteIsSkippedIfAskedFor) {
  TrainSettings settings = exploding();
  settings.not_finite = NotFinite::Skip;
  const Trained run = train(built(two_stages_config, BuildOn::Meta), two_stages_schedule, settings);
  EXPECT_EQ(run.losses.size(), 4u);
  EXPECT_FALSE(std::isfinite(run.losses[3]) && std::isfinite(run.norms[3]));
  settings.steps = 1;
  const Trained first = train(built(two_stages_config, BuildOn::Meta), two_stages_schedule, settings);
  Trained weights, weights_of_first;  // nothing else: the moments would not be there
  weights.weights = run.weights;
  weights_of_first.weights = first.weights;
  EXPECT_EQ(compare(weights, weights_of_first).error, 0);
}

}  // namespace
}  // namespace piper
