#include "capture/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>

namespace piper {

struct MemoryMeter::Counter : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now += bytes;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t now = 0, peak = 0;
};

struct MemoryMeter::Guard {
  explicit Guard(std::shared_ptr<Counter> counter) : guard(c10::DebugInfoKind::PROFILER_STATE, std::move(counter)) {}
  c10::DebugInfoGuard guard;
};

MemoryMeter::MemoryMeter() : counter_(std::make_shared<Counter>()), guard_(std::make_unique<Guard>(counter_)) {}
MemoryMeter::~MemoryMeter() = default;

int64_t MemoryMeter::now() const {
  return counter_->now;
}
int64_t MemoryMeter::peak() const {
  return counter_->peak;
}
void MemoryMeter::reset_peak() {
  counter_->peak = counter_->now;
}

}  // namespace piper
