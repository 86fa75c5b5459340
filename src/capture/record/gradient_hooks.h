// Hooks on gradients: code of the user that runs inside of backward. A plan runs recorded operators only, so a hook is
// captured through the operators that it calls, or refused.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/result.h"
#include "capture/record/recorder.h"

namespace piper {

/// Of everything that the loss was computed from. Hooks on tensors of Python are recorded, and what they return takes
/// the place of the gradient; the package sees to it that they return something. E610: all others.
Checked check_hooks(const at::Tensor& loss, const MetaModel& model);

/// On the node that adds up the gradient of this leaf, as DistributedDataParallel has them.
bool has_accumulation_hook(const at::Tensor& leaf);

}  // namespace piper
