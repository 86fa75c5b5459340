// Queues, events and the recorder, from several threads at once: run under the thread sanitizer too.
#include "runtime/stream/thread_stream.h"

#include <gtest/gtest.h>

#include "base/table.h"
#include "runtime/stream/failure.h"
#include "runtime/stream/flight_recorder.h"

namespace piper {
namespace {

void plainly(const std::function<void()>& run) {
  run();
}
void no_failure(const std::exception_ptr&) {
  ADD_FAILURE() << "nothing fails here";
}

TEST(Stream, WorkRunsInOrder) {
  std::vector<int> seen;
  Event end;
  ThreadStream stream(plainly, no_failure);
  for (int i = 0; i < 1000; ++i) {
    stream.launch([&seen, i] { seen.push_back(i); });
    if (i % 97 == 0) stream.flush();
  }
  stream.record(end, 1);
  stream.flush();
  end.wait(1);
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

/// Two streams hand a number back and forth; without the events this would be a race.
TEST(Stream, EventsOrderStreams) {
  constexpr int rounds = 500;
  int number = 0;
  std::vector<Event> events(2 * rounds + 1);
  ThreadStream a(plainly, no_failure), b(plainly, no_failure);
  for (uint32_t step = 1; step <= 3; ++step) {
    for (int i = 0; i < 2 * rounds; ++i) {
      Stream& stream = i % 2 == 0 ? a : b;
      if (i > 0) stream.wait(events[static_cast<size_t>(i)], step);
      stream.launch([&number] { ++number; });
      stream.record(events[static_cast<size_t>(i) + 1], step);
    }
    a.flush();
    b.flush();
    events[2 * rounds].wait(step);
    EXPECT_EQ(number, static_cast<int>(step) * 2 * rounds);
  }
}

TEST(Stream, AfterAFailureNothingRunsAndNobodyWaits) {
  Failure failure;
  Event never, end;
  failure.stop_with([&](const std::string&) {
    never.release();
    end.release();
  });
  bool ran = false;
  {
    ThreadStream failing(plainly,
                         [&](const std::exception_ptr&) {
                           failure.report({RunProblem::Operation, "first"});
                           failure.report({RunProblem::Stalled, "second"});
                         }),
        waiting(plainly, no_failure);
    waiting.wait(never, 1);
    waiting.flush();
    failing.launch([] { throw std::runtime_error("planted"); });
    failing.launch([&] { ran = true; });
    failing.record(end, 1);
    failing.flush();
    end.wait(1);
  }
  EXPECT_FALSE(ran);
  EXPECT_TRUE(failure.happened());
  EXPECT_STREQ(failure.error().what(), "first");
}

TEST(FlightRecorder, KeepsTheLastSteps) {
  FlightRecorder recorder(3, 2);
  for (int64_t step = 0; step < 5; ++step) {
    recorder.begin(step);
    recorder.launched(OpId(1));
    recorder.started(OpId(1));
    if (step < 4) recorder.ended(OpId(1));
  }
  EXPECT_EQ(recorder.oldest(), 3);
  EXPECT_EQ(recorder.step(), 4);
  EXPECT_EQ(recorder.times(4, OpId(0)).launched, 0);
  EXPECT_NE(recorder.times(3, OpId(1)).ended, 0);
  EXPECT_EQ(recorder.times(4, OpId(1)).ended, 0);
  EXPECT_LE(recorder.times(3, OpId(1)).started, recorder.times(4, OpId(1)).launched);
}

/// Somebody looks while operations run, as the watchdog does.
TEST(FlightRecorder, MayBeReadAtAnyTime) {
  FlightRecorder recorder(10, 2);
  ThreadStream writer(plainly, no_failure);
  Event end;
  writer.launch([&] {
    for (int64_t step = 0; step < 200; ++step) {
      recorder.begin(step);
      for (const OpId op : IdRange<OpId>{OpId(0), OpId(10)}) {
        recorder.launched(op);
        recorder.started(op);
        recorder.ended(op);
      }
    }
  });
  writer.record(end, 1);
  writer.flush();
  int64_t seen = 0;
  while (!end.has_ended(1))
    for (const OpId op : IdRange<OpId>{OpId(0), OpId(10)}) seen += recorder.times(recorder.step(), op).ended != 0;
  end.wait(1);
  EXPECT_NE(recorder.times(199, OpId(9)).ended, 0) << seen;
}

}  // namespace
}  // namespace piper
