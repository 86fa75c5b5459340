// Faults on purpose, in the process that has them.
#pragma once

#include <functional>

#include "train/planted_fault.h"

namespace piper {

/// For RunOptions::before_op.
std::function<void(int device, int op)> plant(const PlantedFault& fault);

}  // namespace piper
