#include "comm/processes/batch.h"

#include "comm/communicator.h"

namespace piper {

void Batch::add() {
  const std::lock_guard lock(mutex_);
  ++left_;
}

void Batch::moved() {
  const std::lock_guard lock(mutex_);
  moved_ = Clock::now();
}

void Batch::complete() {
  const std::lock_guard lock(mutex_);
  moved_ = Clock::now();
  if (--left_ == 0) changed_.notify_all();
}

void Batch::fail(const std::string& problem) {
  const std::lock_guard lock(mutex_);
  if (problem_.empty()) problem_ = problem.empty() ? "stopped" : problem;
  changed_.notify_all();
}

void Batch::stop(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!problem_.empty()) return;
  problem_ = reason.empty() ? "stopped" : reason;
  stopped_ = true;
  changed_.notify_all();
}

void Batch::release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

void Batch::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  moved_ = Clock::now();
  while (left_ > 0) {
    if (stopped_) throw JobStopped(problem_);
    if (!problem_.empty()) throw CommunicationError(problem_);
    if (Clock::now() >= moved_ + timeout) throw CommunicationError("a peer did not come in time");
    changed_.wait_until(lock, moved_ + timeout);
  }
}

bool Batch::wait_for_release(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return released_; });
}

bool Batch::all_complete() {
  const std::lock_guard lock(mutex_);
  return left_ == 0;
}

}  // namespace piper
