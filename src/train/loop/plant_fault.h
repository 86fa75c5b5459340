// Faults on purpose, in the process that has them.
#pragma once

#include <functional>

#include "plan/plan.h"
#include "train/planted_fault.h"

namespace piper {

/// It happens now; returns only where the fault is one of the plan.
void strike(const PlantedFault& fault);

/// For RunOptions::before_op. The plan outlives it.
std::function<void(int device, OpId op)> plant(const PlantedFault& fault, const Plan& plan);

}  // namespace piper
