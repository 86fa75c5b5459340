// The streams of a device, and the events by which operations on different streams wait for each other.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/executor.h"
#include "runtime/memory_meter.h"
#include "runtime/stream/flight_recorder.h"
#include "runtime/stream/serial_stream.h"
#include "runtime/stream/stream.h"

namespace piper {

/// A step is issued by a thread of its own: `start` runs its work there, which launches everything between `begin` and
/// `end`.
class DeviceStreams {
 public:
  /// `timed`: host time of launching computations is measured.
  DeviceStreams(const DeviceContext& on, MemoryCounter& memory, bool timed);
  ~DeviceStreams();

  /// As they are.
  Stream& operator[](PlanStreamId stream) { return *streams_[stream]; }
  /// The operation's stream, decorated: timed, and where the run asks for it serial. Then every launch on it is
  /// followed by one record.
  Stream& of_operation(const PlannedOp& op);
  /// For a CUDA graph segment that begins with the operation: never serial.
  Stream& of_segment(const PlannedOp& first);
  bool is_serial() const { return serial_.active != nullptr; }

  void start(std::function<void()> step);
  void begin() { launching_ = 0; }
  void end();
  /// Waits until the step has ended on all streams.
  void wait() const;
  bool idle() const;

  /// What is launched on the stream from now on starts after the operation.
  void wait(Stream& stream, OpId op) const { stream.wait(events_[op], step_); }
  /// The operation has ended when everything launched on the stream so far has.
  void record(Stream& stream, OpId op) { stream.record(events_[op], step_); }

  /// Host time of launching the last step's computations; 0 unless timed.
  Nanoseconds launch_time() const { return launch_time_.load(std::memory_order_relaxed); }

 private:
  const bool timed_;
  SerialOrder serial_;
  Nanoseconds launching_ = 0;  // host time in this step so far
  std::atomic<Nanoseconds> launch_time_ = 0;
  uint32_t step_ = 0;  // of the events
  Table<OpId, Event> events_;
  Table<PlanStreamId, Event> ends_;
  Event issued_;
  Table<PlanStreamId, std::unique_ptr<Stream>> streams_;  // null where the device does not use one
  std::vector<std::unique_ptr<Stream>> decorators_;
  std::unique_ptr<Stream> issuing_;  // the thread that issues the steps
};

}  // namespace piper
