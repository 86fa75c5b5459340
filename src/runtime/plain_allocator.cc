#include "runtime/plain_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define PIPER_SANITIZES_ADDRESSES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PIPER_SANITIZES_ADDRESSES 1
#endif
#endif

namespace piper {
namespace {

#ifdef PIPER_SANITIZES_ADDRESSES

constexpr size_t alignment = 64;  // as libtorch's own
const c10::Device cpu(c10::DeviceType::CPU);

struct Allocation {
  void* data;
  int64_t counted;  // bytes: an end is counted only where the beginning was, as libtorch does
};

void release(void* context) {
  const auto* allocation = static_cast<Allocation*>(context);
  if (allocation->counted > 0 && c10::memoryProfilingEnabled())
    c10::reportMemoryUsageToProfiler(allocation->data, -allocation->counted, 0, 0, cpu);
  std::free(allocation->data);
  delete allocation;
}

class PlainAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, cpu};
    void* data = nullptr;
    if (posix_memalign(&data, alignment, bytes) != 0) throw std::bad_alloc();
    const int64_t counted = c10::memoryProfilingEnabled() ? static_cast<int64_t>(bytes) : 0;
    if (counted > 0) c10::reportMemoryUsageToProfiler(data, counted, 0, 0, cpu);
    return {data, new Allocation{data, counted}, release, cpu};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

#endif

}  // namespace

void show_tensors_to_sanitizer() {
#ifdef PIPER_SANITIZES_ADDRESSES
  static const bool once = [] {
    static PlainAllocator allocator;
    c10::SetCPUAllocator(&allocator, 1);  // above libtorch's own
    return true;
  }();
  static_cast<void>(once);
#endif
}

}  // namespace piper
