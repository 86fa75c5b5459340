#include "train/loop/take_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <numeric>

#include "base/device_block.h"
#include "base/saturate.h"
#include "comm/processes/process_world.h"
#include "plan/checkpoint_memory.h"
#include "plan/issue_order_memory.h"
#include "plan/lasting_state.h"
#include "train/loop/protect/copy_holders.h"
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

int64_t lasting_bytes(const Plan& plan, int device) {
  const PlanTemplate& program = plan.templates[template_of_device(plan)[static_cast<size_t>(device)]];
  int64_t out = 0;
  for (const BufferId buffer : lasting_state(program)) out = saturating_add(out, program.buffers[buffer].bytes);
  return out;
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

void claim_recent(std::vector<MemoryClaim>& claims, const Plan& plan, const World& world,
                  const std::vector<std::string>& hosts, const Processor& processor) {
  const std::vector<int> places = lost_together(hosts);
  const int devices = device_count(plan), ranks = world.ranks();
  const auto place_of = [&](int device) { return places[static_cast<size_t>(rank_of(device, ranks, devices))]; };
  const auto has_another = [&](int device) {
    for (int other = 0; other < devices; ++other)
      if (other != device && (place_of(other) != place_of(device) || other < device) &&
          keep_the_same(plan, device, other))
        return true;
    return false;
  };
  const DeviceBlock before = devices_of((world.rank() + ranks - distance_of_copies(places, 1)) % ranks, ranks, devices);
  int64_t bytes = 0;
  for (int device = 0; device < devices; ++device) {
    const int64_t versions = saturating_multiply(2, lasting_bytes(plan, device));
    if (devices_here(plan, &world).has(device)) bytes = saturating_add(bytes, versions);
    if (before.has(device) && !has_another(device)) bytes = saturating_add(bytes, versions);
  }
  if (!processor.device().is_cpu() && claims.size() == 1)
    claims.push_back({claims[0].process, 0, host_memory(host_name())});
  claims.back().recent = bytes;
}

}  // namespace piper
