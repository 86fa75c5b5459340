#include "runtime/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>

namespace piper {

struct MemoryCounter::Hook : c10::MemoryReportingInfoBase {
  explicit Hook(c10::DeviceType counted) : of(counted) {}
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device device) override {
    if (device.type() != of) return;
    const int64_t after = now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t most = peak.load(std::memory_order_relaxed);
    while (after > most && !peak.compare_exchange_weak(most, after, std::memory_order_relaxed)) {
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  const c10::DeviceType of;
  std::atomic<int64_t> now = 0, peak = 0;
};

MemoryCounter::MemoryCounter(c10::DeviceType of) : hook_(std::make_shared<Hook>(of)) {}
MemoryCounter::~MemoryCounter() = default;

int64_t MemoryCounter::now() const {
  return hook_->now.load(std::memory_order_relaxed);
}
int64_t MemoryCounter::peak() const {
  return hook_->peak.load(std::memory_order_relaxed);
}
void MemoryCounter::reset_peak() {
  hook_->peak.store(hook_->now.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

struct CountMemory::Guard {
  explicit Guard(std::shared_ptr<MemoryCounter::Hook> hook)
      : guard(c10::DebugInfoKind::PROFILER_STATE, std::move(hook)) {}
  c10::DebugInfoGuard guard;
};

CountMemory::CountMemory(MemoryCounter& counter) : guard_(std::make_unique<Guard>(counter.hook_)) {}
CountMemory::~CountMemory() = default;

}  // namespace piper
