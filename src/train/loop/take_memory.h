// What the devices of a plan will take in this process, and what there is for them.
#pragma once

#include "comm/world.h"
#include "plan/plan.h"
#include "runtime/processor.h"
#include "train/memory_claims.h"

namespace piper {

/// The peaks of its devices. `world`: the processes of the job; null: all devices are in this one.
MemoryClaim memory_claim(const Plan& plan, const World* world, const Processor& processor);

/// The same, and the copies from which checkpoints are written: memory of the host.
std::vector<MemoryClaim> claims_with_checkpoints(const Plan& plan, const StepConfig& step, const World* world,
                                                 const Processor& processor);

/// Adds copies of the last two steps, of the devices of this process and of those whose copies it has for another one
/// (train/loop/protect). `hosts`: where the processes are, by rank.
void claim_recent(std::vector<MemoryClaim>& claims, const Plan& plan, const World& world,
                  const std::vector<std::string>& hosts, const Processor& processor);

}  // namespace piper
