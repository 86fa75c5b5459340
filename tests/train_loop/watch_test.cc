// When a run counts as stalled: limits follow from predictions and from earlier steps.
#include "runtime/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "models/configurations.h"
#include "runtime/device_run.h"
#include "schedule/schedule_text.h"
#include "train/loop/prepare_training.h"
#include "train_loop/two_stages.h"

namespace piper {
namespace {

using testing::HasSubstr;

const Plan& two_stages() {
  static const auto plan = prepare_training(built(two_stages_config, BuildOn::Meta),
                                            *parse_schedule(make_source("s.piper", two_stages_schedule)))
                               ->plan;
  return *plan;
}

OpId first_op(int device, OpKind kind) {
  const auto& ops = program_of(two_stages(), device).ops;
  for (const OpId i : ops.ids())
    if (ops[i].kind == kind) return i;
  ADD_FAILURE() << "no such operation";
  return {};
}

/// A device in one operation; `longest`: what it took in earlier steps.
DeviceProgress in(int device, OpKind kind, double longest) {
  const OpId op = first_op(device, kind);
  DeviceProgress out;
  out.device = device;
  out.step = 3;
  out.streams.resize(two_stages().streams.size());
  const PlanStreamId stream = program_of(two_stages(), device).ops[op].stream;
  out.streams[stream.index()] = {op, 0, false, longest};
  return out;
}
/// A device that has done nothing in its step.
DeviceProgress at_the_beginning(int device) {
  DeviceProgress out;
  out.device = device;
  out.step = 3;
  return out;
}

/// Looks four times a second, for so long at most; when it complains, and why.
struct Complaint {
  double at = -1;
  std::string why;
};
using State = std::function<std::vector<DeviceProgress>(double)>;
Complaint watch(Watch& watch, double seconds, const State& state) {
  for (double now = 100; now <= 100 + seconds; now += 0.25)
    if (const auto why = watch.look(state(now - 100), now)) return {now - 100, *why};
  return {};
}

const Timeouts timeout{.least = 2, .factor = 10, .first = 60};

TEST(Watch, AComputationMayTakeTenTimesWhatItTookBefore) {
  Watch one(two_stages(), timeout, {}, Judges::All);
  const Complaint complaint = watch(one, 100, [](double) {
    return std::vector{in(0, OpKind::Run, 1.0), at_the_beginning(1)};
  });
  EXPECT_NEAR(complaint.at, 12, 0.5);
  EXPECT_THAT(complaint.why, HasSubstr("instead of 1.0 s: device 0: op"));
  EXPECT_THAT(complaint.why, HasSubstr("does not end"));
}

TEST(Watch, TheFirstStepHasMoreTimeAndPredictionsMakeItLonger) {
  Watch one(two_stages(), timeout, {}, Judges::All);
  const State state = [](double) { return std::vector{in(0, OpKind::Run, 0), at_the_beginning(1)}; };
  EXPECT_NEAR(watch(one, 100, state).at, 60, 0.5);
  Predictions predictions;
  predictions.works.assign(two_stages().works.size(), 30);
  Watch warned(two_stages(), timeout, predictions, Judges::All);
  EXPECT_NEAR(watch(warned, 1000, state).at, 302, 0.5);
}

TEST(Watch, ACommunicationBeginsWhenTheLastDeviceHasComeAndAgainWhenDataMoves) {
  const auto waits = in(1, OpKind::Recv, 0.1);
  {
    Watch one(two_stages(), timeout, {}, Judges::All);  // the other computes for long, as it always does
    EXPECT_EQ(watch(one, 100, [&](double) { return std::vector{in(0, OpKind::Run, 20), waits}; }).at, -1);
  }
  {
    Watch one(two_stages(), timeout, {}, Judges::All);  // a slow link: a piece every two seconds
    EXPECT_EQ(watch(one, 1000,
                    [&](double now) {
                      std::vector out{in(0, OpKind::Send, 0.1), waits};
                      for (DeviceProgress& device : out) device.moved = static_cast<int64_t>(now / 2);
                      return out;
                    })
                  .at,
              -1);
  }
  Watch one(two_stages(), timeout, {}, Judges::All);
  EXPECT_NEAR(watch(one, 100, [&](double) { return std::vector{in(0, OpKind::Send, 0.1), waits}; }).at, 3, 0.5);
}

TEST(Watch, SilenceIsComparedWithSilenceBefore) {
  const auto silent_for = [](double seconds) {
    std::vector out{in(0, OpKind::Run, 100), in(1, OpKind::Recv, 100)};
    out[1].silent = seconds;
    out[1].where = "rank 1 on there";
    return out;
  };
  Watch one(two_stages(), timeout, {}, Judges::All);
  const Complaint complaint = watch(one, 100, silent_for);
  EXPECT_NEAR(complaint.at, 2.25, 0.5);
  EXPECT_THAT(complaint.why, HasSubstr("device 1 (rank 1 on there) gives no sign of life"));
  for (const Judges judges : {Judges::All, Judges::Silence}) {  // of a process that speaks every second only
    Watch used_to_it(two_stages(), timeout, {}, judges);
    EXPECT_NEAR(
        watch(used_to_it, 100, [&](double now) { return silent_for(now < 20 ? std::fmod(now, 1) : now - 20); }).at,
        20 + 2 + 10 * 0.75, 0.5);
  }
}

TEST(Watch, TimeInWhichThisProcessDidNotRunDoesNotCount) {
  Watch one(two_stages(), timeout, {}, Judges::All);
  const auto silent_for = [](double seconds) {
    std::vector out{in(0, OpKind::Run, 0.01), in(1, OpKind::Recv, 0.01)};
    out[1].silent = seconds;
    return out;
  };
  EXPECT_FALSE(one.look(silent_for(0), 10));
  EXPECT_FALSE(one.look(silent_for(3600), 3610)) << "it was stopped for an hour itself";
}

TEST(Watch, NothingInProgressAnywhere) {
  Watch one(two_stages(), timeout, {}, Judges::All);
  EXPECT_NEAR(watch(one, 100,
                    [](double) {
                      return std::vector{at_the_beginning(0), at_the_beginning(1)};
                    })
                  .at,
              60, 0.5);
  Watch other(two_stages(), timeout, {}, Judges::All);
  const Complaint complaint = watch(other, 100, [](double) { return std::vector{at_the_beginning(0)}; });
  EXPECT_NEAR(complaint.at, 60, 0.5);
  EXPECT_THAT(complaint.why, HasSubstr("device 1"));
}

}  // namespace
}  // namespace piper
