// Element types of checkpoints, as plans call them.
#pragma once

#include <optional>

#include "checkpoint/safetensors.h"
#include "model/size.h"

namespace piper {

StoredDType stored(DType dtype);
/// None: a type that plans do not have.
std::optional<DType> dtype_of(StoredDType dtype);

}  // namespace piper
