// The first thing that went wrong in a run. Everything else stops because of it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace piper {

enum class RunProblem {
  Operation,
  Memory,  // there was not enough for one
  Stalled,
  NotFinite,
  Elsewhere  // another process has said what
};

/// A run ended early. The message names device, operation and the line of the schedule behind it.
struct RunError : std::runtime_error {
  RunError(RunProblem what_kind, const std::string& message) : std::runtime_error(message), problem(what_kind) {}
  RunProblem problem;
};

class Failure {
 public:
  /// Only the first report counts.
  void report(const RunError& error) {
    const std::lock_guard lock(mutex_);
    if (happened_.load()) return;
    error_ = error;
    happened_.store(true);
    for (const auto& stop : stops_) stop(error.what());
  }
  bool happened() const { return happened_.load(std::memory_order_relaxed); }
  RunError error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  /// What to do when something goes wrong: wake up whoever waits.
  void stop_with(std::function<void(const std::string&)> stop) {
    const std::lock_guard lock(mutex_);
    stops_.push_back(std::move(stop));
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> happened_ = false;
  RunError error_{RunProblem::Operation, ""};
  std::vector<std::function<void(const std::string&)>> stops_;
};

}  // namespace piper
