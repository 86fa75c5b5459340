// An in-order queue of a device; streams run concurrently.
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

  /// What is launched from now on starts after the event.
  virtual void wait(const Event& event, uint32_t step) = 0;
  virtual void launch(std::function<void()> work) = 0;
  /// Signals the event when everything launched so far has ended.
  virtual void record(Event& event, uint32_t step) = 0;
  /// Starts everything launched so far that may still be buffered.
  virtual void flush() = 0;
  /// Whether everything that was flushed has ended.
  virtual bool idle() const = 0;
};

}  // namespace piper
