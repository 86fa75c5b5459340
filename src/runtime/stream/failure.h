// The first thing that went wrong in a run. Everything else stops because of it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace piper {

/// A run ended early. The message names device, operation and the line of the schedule behind it.
struct RunError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Failure {
 public:
  /// Only the first report counts.
  void report(const std::string& message) {
    const std::lock_guard lock(mutex_);
    if (happened_.load()) return;
    message_ = message;
    happened_.store(true);
    for (const auto& stop : stops_) stop(message_);
  }
  bool happened() const { return happened_.load(std::memory_order_relaxed); }
  std::string message() const {
    const std::lock_guard lock(mutex_);
    return message_;
  }
  /// What to do when something goes wrong: wake up whoever waits.
  void stop_with(std::function<void(const std::string&)> stop) {
    const std::lock_guard lock(mutex_);
    stops_.push_back(std::move(stop));
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> happened_ = false;
  std::string message_;
  std::vector<std::function<void(const std::string&)>> stops_;
};

}  // namespace piper
