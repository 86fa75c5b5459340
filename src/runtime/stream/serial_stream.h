// A stream on which every launch ends before the next, on it or on the other streams that share its order.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/stream/stream.h"

namespace piper {

/// Of the streams of one device; used by the launching thread.
struct SerialOrder {
  std::function<bool()> active;  // false: streams run concurrently
  std::mutex* alone = nullptr;   // held while a device computes, if devices take turns; may be null

  // launched together; waited for when all of it has been recorded
  size_t launched = 0;
  std::vector<std::pair<const Event*, uint32_t>> recorded = {};
  std::unique_lock<std::mutex> turn = {};
};

/// Every launch is followed by one record.
class SerialStream : public Stream {
 public:
  /// `takes_turns`: no other device computes meanwhile.
  SerialStream(Stream& stream, SerialOrder& order, bool takes_turns)
      : stream_(stream), order_(order), takes_turns_(takes_turns) {}

  void wait(const Event& event, uint32_t step) override { stream_.wait(event, step); }
  void launch(std::function<void()> work) override {
    if (order_.active()) {
      if (takes_turns_ && order_.alone && !order_.turn.owns_lock()) order_.turn = std::unique_lock(*order_.alone);
      ++order_.launched;
    }
    stream_.launch(std::move(work));
  }
  void record(Event& event, uint32_t step) override {
    stream_.record(event, step);
    if (order_.launched == 0) return;
    stream_.flush();
    order_.recorded.emplace_back(&event, step);
    if (order_.recorded.size() < order_.launched) return;
    for (const auto& [ended, of_step] : order_.recorded) ended->wait(of_step);
    order_.launched = 0;
    order_.recorded.clear();
    order_.turn = {};
  }
  void flush() override { stream_.flush(); }
  bool idle() const override { return stream_.idle(); }

 private:
  Stream& stream_;
  SerialOrder& order_;
  const bool takes_turns_;
};

}  // namespace piper
