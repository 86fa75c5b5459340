// The messages that one call has in progress: filled by the caller, emptied by whoever carries them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

namespace piper {

class Batch {
 public:
  explicit Batch(int world) : world_(world) {}

  int world() const { return world_; }

  /// One more message, before it is handed to its carrier.
  void add();
  /// Something of a message has moved.
  void moved();
  /// A message is complete.
  void complete();
  /// The call cannot succeed any more. The first problem stays.
  void fail(const std::string& problem);
  /// The same, because the job has been ended.
  void stop(const std::string& reason);
  /// Nobody uses the caller's memory any more.
  void release();

  /// Until all is complete. Throws CommunicationError.
  void wait(std::chrono::milliseconds timeout);
  /// Until `release`; false: not in time.
  bool wait_for_release(std::chrono::milliseconds timeout);
  bool all_complete();

 private:
  using Clock = std::chrono::steady_clock;

  const int world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_ = 0;
  bool released_ = false;
  std::string problem_;
  bool stopped_ = false;
  Clock::time_point moved_ = Clock::now();
};

}  // namespace piper
