// Faults on purpose, in the process that has them.
#pragma once

#include <functional>

#include "plan/plan.h"
#include "train/planted_fault.h"

namespace piper {

/// For RunOptions::before_op. The plan outlives it.
/// It happens now; returns only where the fault is one of the plan.
void strike(const PlantedFault& fault);

std::function<void(int device, int op)> plant(const PlantedFault& fault, const Plan& plan);

}  // namespace piper
