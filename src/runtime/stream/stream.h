// An in-order queue of a device. What it is given is done one after the other, beside what other streams do.
#pragma once

#include <functional>

#include "runtime/stream/event.h"

namespace piper {

class Stream {
 public:
  Stream() = default;
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// What is put in from now on begins when the event has come.
  virtual void wait(const Event& event, uint32_t step) = 0;
  virtual void launch(std::function<void()> work) = 0;
  /// The event comes when everything put in so far has been done.
  virtual void record(Event& event, uint32_t step) = 0;
  /// Sees to it that everything put in so far is done.
  virtual void flush() = 0;
  /// Everything that was flushed has been done.
  virtual bool idle() const = 0;
};

}  // namespace piper
