// How a device updates its range of a bucket: which parameters lie there, and what is done to them.
#pragma once

#include <optional>
#include <vector>

#include "plan/bucket_part.h"
#include "runtime/frame.h"

namespace piper {

struct UpdatePart {
  std::optional<size_t> group;  // of the step's; none: parameters are updated like the rest
  ElementPart part;             // of the range
};

/// The first group whose pattern a parameter's name matches counts. Neighbours in one group are one part; padding
/// belongs to the last.
std::vector<UpdatePart> update_parts(const Plan& plan, const PlanBucket& bucket, const BucketPart& part,
                                     const std::vector<ParameterGroup>& groups);
OptimizerSettings settings_of(const UpdatePart& part, const StepSettings& settings);

/// Gradients are sums over all losses; clipping makes their mean smaller.
GradientScale gradient_scale(const StepSettings& settings, double norm, double losses);

}  // namespace piper
