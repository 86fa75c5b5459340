// What a checkpoint has of a model, and which device writes which bytes of it.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/layout.h"
#include "models/build_model.h"
#include "plan/plan.h"
#include "runtime/parameters.h"

namespace piper {

/// A parameter, or a buffer of the module, and its name in a checkpoint.
struct SavedName {
  std::string name, stored;
};

/// Parameters of the model in their own order, by their own names.
std::vector<SavedName> own_names(const TrainableModel& model);

/// Something that is kept for every element of a parameter: a tensor of a checkpoint.
struct StateTensor {
  std::string parameter;
  Kept kept = Kept::Weight;
  StoredTensor stored;
};

/// In the order of `names`: a checkpoint does not depend on the plan.
struct ModelState {
  std::vector<StateTensor> weights, optimizer;
};
ModelState model_state(const Plan& plan, const StepConfig& step, const Computations& computations,
                       const std::vector<SavedName>& names);

/// Whether updates keep something for the elements of a bucket.
bool has_state(const Plan& plan, const PlanBucket& bucket);

/// `exp_avg` and `exp_avg_sq` of AdamW, `momentum_buffer` of SGD with momentum, `master`.
std::string_view suffix(Kept kept, Optimizer optimizer);

/// Elements of its part of a bucket that a device writes. Every element of a model is written by one device: equal
/// copies divide the work among them.
ElementRange written_range(const BucketPart& part);

/// Elements that a device writes: where they lie in the whole parameter, and in the device's part of the bucket.
struct StatePiece {
  int device = 0;
  int64_t whole = 0, part = 0, count = 0;
};
/// Of all devices of the plan, in the order of the whole: one behind the other, they are all of it.
std::vector<StatePiece> pieces_of(const Plan& plan, const Computations& computations, const std::string& parameter);

}  // namespace piper
