#include "runtime/update_parts.h"

#include <algorithm>

#include "base/hash.h"
#include "runtime/element_runs.h"

namespace piper {
namespace {

/// The parameters that have elements in the range of a device: where in the range, and in the device's piece of them.
struct ParameterHere {
  const std::string& name;
  ElementPart part;
  ElementRange of_shard;
};
std::vector<ParameterHere> parameters_in(const Plan& plan, const PlanBucket& bucket, ElementRange range) {
  std::vector<ParameterHere> out;
  int64_t begin = -range.begin;
  for (const PlanParameter& parameter : bucket.parameters) {
    const int64_t end = begin + parameter.elements;
    const ElementPart here{std::clamp<int64_t>(begin, 0, range.count), std::clamp<int64_t>(end, 0, range.count)};
    if (here.begin < here.end)
      out.push_back({plan.names[parameter.name], here, {here.begin - begin, here.end - here.begin}});
    begin = end;
  }
  return out;
}

std::vector<UpdatePart> with_padding(std::vector<UpdatePart> parts, ElementRange range) {
  if (parts.empty()) parts.emplace_back();
  parts.back().part.end = range.count;
  return parts;
}

/// How many runs from the first on are equally long and far apart.
size_t equal_runs(const std::vector<ElementRun>& runs, size_t first) {
  size_t past = first + 1;
  while (past < runs.size() && runs[past].count == runs[first].count &&
         runs[past].whole - runs[past - 1].whole == runs[first + 1].whole - runs[first].whole)
    ++past;
  return past - first;
}

}  // namespace

std::vector<UpdatePart> update_parts(const Plan& plan, const PlanBucket& bucket, const BucketPart& part,
                                     const std::vector<ParameterGroup>& groups) {
  std::vector<UpdatePart> out;
  for (const ParameterHere& parameter : parameters_in(plan, bucket, part.range())) {
    const std::optional<size_t> group = group_of(groups, parameter.name);
    if (out.empty() || out.back().group != group)
      out.push_back({group, parameter.part});
    else
      out.back().part.end = parameter.part.end;
  }
  return with_padding(std::move(out), part.range());
}

std::vector<UpdatePart> rounded_parts(const Plan& plan, const PlanBucket& bucket, const BucketPart& part,
                                      const std::vector<ParameterGroup>& groups, const Computations& computations) {
  std::vector<UpdatePart> out;
  for (const ParameterHere& parameter : parameters_in(plan, bucket, part.range())) {
    StableHash hash;
    hash.add(parameter.name);
    const std::vector<ElementRun> runs =
        element_runs(computations.parameter(parameter.name), part.shards, parameter.of_shard);
    int64_t begin = parameter.part.begin;
    for (size_t first = 0; first < runs.size();) {
      const size_t count = equal_runs(runs, first);
      RoundedElements elements{0, runs[first].whole};
      if (count > 1) {
        elements.run = runs[first].count;
        elements.apart = runs[first + 1].whole - runs[first].whole;
      }
      const int64_t end = begin + static_cast<int64_t>(count) * runs[first].count;
      out.push_back({group_of(groups, parameter.name), {begin, end, elements}, hash.value()});
      begin = end;
      first += count;
    }
  }
  return with_padding(std::move(out), part.range());
}

OptimizerSettings settings_of(const UpdatePart& part, const StepSettings& settings) {
  return part.group ? settings_of(settings.optimizer, settings.groups[*part.group]) : settings.optimizer;
}

ElementPart elements_of(const UpdatePart& part, const StepSettings& settings) {
  ElementPart out = part.part;
  StableHash key;
  key.add(settings.seed);
  key.add(part.parameter);
  out.rounded.key = key.value();
  return out;
}

GradientScale gradient_scale(const StepSettings& settings, double norm, double losses) {
  GradientScale out{1 / losses, settings.clip_value};
  if (settings.clip && norm > *settings.clip) out.factor *= *settings.clip / (norm + 1e-6);
  return out;
}

}  // namespace piper
