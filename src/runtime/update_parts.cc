#include "runtime/update_parts.h"

#include <algorithm>

namespace piper {

std::vector<UpdatePart> update_parts(const Plan& plan, const PlanBucket& bucket, const BucketPart& part,
                                     const std::vector<ParameterGroup>& groups) {
  const ElementRange range = part.range();
  std::vector<UpdatePart> out;
  int64_t begin = -range.begin;
  for (const PlanParameter& parameter : bucket.parameters) {
    const int64_t end = begin + parameter.elements;
    const ElementPart here{std::clamp<int64_t>(begin, 0, range.count), std::clamp<int64_t>(end, 0, range.count)};
    begin = end;
    if (here.begin == here.end) continue;
    const std::optional<size_t> group = group_of(groups, plan.names[parameter.name]);
    if (out.empty() || out.back().group != group)
      out.push_back({group, here});
    else
      out.back().part.end = here.end;
  }
  if (out.empty()) out.emplace_back();
  out.back().part.end = range.count;
  return out;
}

OptimizerSettings settings_of(const UpdatePart& part, const StepSettings& settings) {
  return part.group ? settings_of(settings.optimizer, settings.groups[*part.group]) : settings.optimizer;
}

GradientScale gradient_scale(const StepSettings& settings, double norm, double losses) {
  GradientScale out{1 / losses, settings.clip_value};
  if (settings.clip && norm > *settings.clip) out.factor *= *settings.clip / (norm + 1e-6);
  return out;
}

}  // namespace piper
