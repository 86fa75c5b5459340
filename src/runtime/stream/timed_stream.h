// A stream that measures how long launches take.
#pragma once

#include <utility>

#include "runtime/stream/flight_recorder.h"
#include "runtime/stream/stream.h"

namespace piper {

class TimedStream : public Stream {
 public:
  TimedStream(Stream& stream, Nanoseconds& total) : stream_(stream), total_(total) {}

  void wait(const Event& event, uint32_t step) override { stream_.wait(event, step); }
  void launch(std::function<void()> work) override {
    const Nanoseconds start = now();
    stream_.launch(std::move(work));
    total_ += now() - start;
  }
  void record(Event& event, uint32_t step) override { stream_.record(event, step); }
  void flush() override { stream_.flush(); }
  bool idle() const override { return stream_.idle(); }

 private:
  Stream& stream_;
  Nanoseconds& total_;
};

}  // namespace piper
