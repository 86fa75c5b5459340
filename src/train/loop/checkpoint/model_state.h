// What a checkpoint has of a model, and which device writes which bytes of it.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/layout.h"
#include "models/saved_name.h"
#include "plan/checkpoint_memory.h"
#include "runtime/parameters.h"

namespace piper {

/// Threads that sum up and copy what goes to the disk, or comes from it.
constexpr size_t disk_threads = 4;

/// Something that is kept for the elements of a parameter, or of a part of it: a tensor of a checkpoint.
struct StateTensor {
  std::string parameter;
  Kept kept = Kept::Weight;
  StoredTensor stored;
  ParameterPlace place;  // of what is kept for whole parameters: among that of the bucket
  int64_t first = 0;     // element of the parameter that it begins with; below 0: so many zeros come before
};

/// In the order of `names`: a checkpoint does not depend on the plan.
struct ModelState {
  std::vector<StateTensor> weights, optimizer;
};
ModelState model_state(const Plan& plan, const StepConfig& step, const Computations& computations,
                       const std::vector<SavedName>& names);

/// `exp_avg` and `exp_avg_sq` of AdamW, `momentum_buffer` of SGD with momentum and of Muon, `master`, `ema`. Those of
/// whole parameters are in model/whole_state.h.
std::string_view suffix(Kept kept, Optimizer optimizer);

/// Elements that a device writes: where they lie in the whole parameter, and in the device's part of the bucket.
struct StatePiece {
  int device = 0;
  int64_t whole = 0, part = 0, count = 0;
};
/// Of all devices of the plan, in the order of the whole: one after another, they are all of the tensor but for the
/// zeros before it. `whole` counts from its first element.
std::vector<StatePiece> pieces_of(const Plan& plan, const Computations& computations, const StateTensor& tensor);

}  // namespace piper
