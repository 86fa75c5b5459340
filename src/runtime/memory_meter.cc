#include "runtime/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <mutex>

namespace piper {

struct MemoryCounter::Hook : c10::MemoryReportingInfoBase {
  explicit Hook(c10::DeviceType counted) : of(counted) {}
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device device) override {
    if (device.type() != of) return;
    const std::lock_guard lock(mutex);
    now += bytes;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }

  const c10::DeviceType of;
  std::mutex mutex;
  int64_t now = 0, peak = 0;
};

MemoryCounter::MemoryCounter(c10::DeviceType of) : hook_(std::make_shared<Hook>(of)) {}
MemoryCounter::~MemoryCounter() = default;

int64_t MemoryCounter::now() const {
  const std::lock_guard lock(hook_->mutex);
  return hook_->now;
}
int64_t MemoryCounter::peak() const {
  const std::lock_guard lock(hook_->mutex);
  return hook_->peak;
}
void MemoryCounter::reset_peak() {
  const std::lock_guard lock(hook_->mutex);
  hook_->peak = hook_->now;
}

struct CountMemory::Guard {
  explicit Guard(std::shared_ptr<MemoryCounter::Hook> hook)
      : guard(c10::DebugInfoKind::PROFILER_STATE, std::move(hook)) {}
  c10::DebugInfoGuard guard;
};

CountMemory::CountMemory(MemoryCounter& counter) : guard_(std::make_unique<Guard>(counter.hook_)) {}
CountMemory::~CountMemory() = default;

}  // namespace piper
