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
  uint64_t parameter = 0;       // where moments are rounded at random: hash of its name
};

/// A parameter belongs to the first group whose pattern matches its name. Neighbours in one group are one part; padding
/// belongs to the last.
std::vector<UpdatePart> update_parts(const Plan& plan, const PlanBucket& bucket, const BucketPart& part,
                                     const std::vector<ParameterGroup>& groups);
/// The same where moments are rounded at random: every part has elements of one parameter, in runs of equal length and
/// distance.
std::vector<UpdatePart> rounded_parts(const Plan& plan, const PlanBucket& bucket, const BucketPart& part,
                                      const std::vector<ParameterGroup>& groups, const Computations& computations);
/// Of the step.
OptimizerSettings settings_of(const UpdatePart& part, const StepSettings& settings);
ElementPart elements_of(const UpdatePart& part, const StepSettings& settings);

/// Gradients are sums over all losses; clipping makes their mean smaller.
GradientScale gradient_scale(const StepSettings& settings, double norm, double losses);

}  // namespace piper
