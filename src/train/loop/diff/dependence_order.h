// The operations of all devices, one after the other.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace piper {

/// The part of a partition to which the device belongs.
std::vector<int> part_with(const Plan& plan, PartitionId partition, int device);

struct OpOnDevice {
  int device = 0;
  OpId op;
};

/// Each comes after all that it depends on, on any device. The same order for the same plan.
std::vector<OpOnDevice> dependence_order(const Plan& plan);

}  // namespace piper
