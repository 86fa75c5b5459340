// A stream on the CPU: a thread that runs what was launched.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/stream/stream.h"

namespace piper {

class ThreadStream : public Stream {
 public:
  /// `on_thread` wraps everything that the stream's thread does. `failed` gets what a piece of work throws; after that,
  /// nothing more runs.
  ThreadStream(std::function<void(const std::function<void()>&)> on_thread,
               std::function<void(std::exception_ptr)> failed);
  ~ThreadStream() override;

  void wait(const Event& event, uint32_t step) override;
  void launch(std::function<void()> work) override;
  void record(Event& event, uint32_t step) override;
  /// Hands everything launched so far to the thread.
  void flush() override;
  bool idle() const override { return idle_.load(); }

 private:
  struct Command {
    std::function<void()> work;  // none: an event
    const Event* awaited = nullptr;
    Event* recorded = nullptr;
    uint32_t step = 0;
  };
  void run();
  void execute(Command& command);

  std::function<void(std::exception_ptr)> failed_;
  bool stopped_ = false;          // of the stream's thread
  std::vector<Command> filling_;  // of the launching thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Command> handed_;
  bool ended_ = false;
  std::atomic<bool> idle_ = true;
  std::thread thread_;
};

}  // namespace piper
