// What every update does first: it finds out whether there is something to update, and by how much to scale gradients.
#pragma once

#include <optional>

#include "runtime/executor.h"
#include "runtime/update_parts.h"

namespace piper {

class UpdateScale {
 public:
  UpdateScale(const Preparation& prepare, OpId op)
      : local_(prepare, prepare.op(op).reads), losses_(static_cast<double>(prepare.plan.losses)) {}

  /// None: the step adds to gradients and updates nothing, or it is not finite. On a single device the first update
  /// sums up the step's scalars.
  std::optional<GradientScale> of(Frame& frame) const;

 private:
  LocalScalars local_;
  double losses_;
};

}  // namespace piper
