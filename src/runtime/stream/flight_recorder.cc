#include "runtime/stream/flight_recorder.h"

#include <algorithm>

namespace piper {

FlightRecorder::FlightRecorder(size_t ops, size_t steps)
    : ops_(ops),
      steps_(std::max<size_t>(steps, 1)),
      records_(std::make_unique<Record[]>(ops_ * steps_)),
      longest_(std::make_unique<std::atomic<Nanoseconds>[]>(ops_)) {}

void FlightRecorder::begin(int64_t step) {
  for (size_t op = 0; op < ops_; ++op) {
    Record& record = at(step, OpId(op));
    for (auto* time : {&record.launched, &record.started, &record.ended}) time->store(0, std::memory_order_relaxed);
  }
  step_ = step;
}

void FlightRecorder::ended(OpId op, Nanoseconds when) {
  Record& record = at(step_, op);
  record.ended.store(when, std::memory_order_relaxed);
  note_length(op, when - record.started.load(std::memory_order_relaxed));
}

void FlightRecorder::correct(OpId op, Nanoseconds started, Nanoseconds ended) {
  Record& record = at(step_, op);
  record.started.store(started, std::memory_order_relaxed);
  record.ended.store(ended, std::memory_order_relaxed);
  note_length(op, ended - started);
}

void FlightRecorder::note_length(OpId op, Nanoseconds took) {
  std::atomic<Nanoseconds>& longest = longest_[op.index()];  // written by one thread at a time
  if (took > longest.load(std::memory_order_relaxed)) longest.store(took, std::memory_order_relaxed);
}

int64_t FlightRecorder::oldest() const {
  return std::max<int64_t>(0, step_ - static_cast<int64_t>(steps_) + 1);
}

OpTimes FlightRecorder::times(int64_t step, OpId op) const {
  const Record& record = at(step, op);
  return {record.launched.load(std::memory_order_relaxed), record.started.load(std::memory_order_relaxed),
          record.ended.load(std::memory_order_relaxed)};
}

}  // namespace piper
