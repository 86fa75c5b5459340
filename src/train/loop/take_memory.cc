#include "train/loop/take_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <numeric>

#include "base/device_block.h"
#include "base/saturate.h"
#include "comm/processes/process_world.h"
#include "plan/checkpoint_memory.h"
#include "plan/issue_order_memory.h"
#include "train/loop/together.h"

namespace piper {
namespace {

/// All devices of a process share its processors, or its GPU.
std::vector<MemoryPool> memory_of(const Processor& processor, const std::string& process) {
  const c10::Device place = processor.device();
  if (place.is_cpu()) return host_memory(host_name());
  c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(place.type());
  allocator.emptyCache();  // of what operators took when they were measured
  return {{"the GPU of " + process, static_cast<int64_t>(allocator.getMemoryInfo(place.index()).first)}};
}

DeviceBlock devices_here(const Plan& plan, const World* world) {
  const int devices = device_count(plan);
  return world ? devices_of(world->rank(), world->ranks(), devices) : DeviceBlock{0, devices};
}

}  // namespace

MemoryClaim memory_claim(const Plan& plan, const World* world, const Processor& processor) {
  const DeviceBlock here = devices_here(plan, world);
  const std::string process = world ? name_of_process(*world) : "this process";
  MemoryClaim claim{process, 0, memory_of(processor, process)};
  for (const PlanTemplate& t : plan.templates) {
    const int64_t count = std::ranges::count_if(t.devices, [&](int device) { return here.has(device); });
    if (count > 0) claim.needed = saturating_add(claim.needed, saturating_multiply(count, issue_order_use(t).peak));
  }
  return claim;
}

std::vector<MemoryClaim> claims_with_checkpoints(const Plan& plan, const StepConfig& step, const World* world,
                                                 const Processor& processor) {
  const DeviceBlock here = devices_here(plan, world);
  const std::vector<int64_t> by_device = copied_bytes(plan, step);
  const auto first = by_device.begin() + here.first;
  const int64_t copies = std::accumulate(first, first + here.count, int64_t{0}, saturating_add);
  std::vector<MemoryClaim> out = {memory_claim(plan, world, processor)};
  if (processor.device().is_cpu())
    out[0].copies = copies;
  else
    out.push_back({out[0].process, 0, host_memory(host_name()), copies});
  return out;
}

}  // namespace piper
