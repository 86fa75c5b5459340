#include "schedule/shard_target.h"

#include <algorithm>
#include <set>

#include "base/saturate.h"

namespace piper {

bool divides_context(const Shard& shard) {
  return shard.sequence != Sequence::Off && shard.sequence != Sequence::On;
}

int64_t devices_along(const Schedule& schedule, const Shard& shard) {
  int64_t devices = 1;
  for (const Directive& directive : schedule.directives)
    if (const auto* mesh = std::get_if<Mesh>(&directive.body))
      for (const MeshAxis& axis : mesh->axes)
        if (std::ranges::find(shard.devices.along, axis.name) != shard.devices.along.end())
          devices = saturating_multiply(devices, axis.size);
  return devices;
}

bool names_parameters(const Shard& shard) {
  Shard experts;  // with no more than such a directive says
  experts.what = shard.what;
  experts.devices = shard.devices;
  experts.stream = shard.stream;
  experts.order = shard.order;
  experts.buffer = shard.buffer;
  return !divides_context(shard) && shard != experts;
}

bool divides_experts(const Shard& shard, const std::vector<AnnotatedPart>& parts) {
  if (names_parameters(shard) || divides_context(shard)) return false;
  std::set<std::string_view> scopes;
  for (const AnnotatedPart& part : parts)
    for (const ScopeTag& tag : part.scopes) scopes.insert(tag.scope);
  bool any = false;
  for (const AnnotatedPart& part : parts) {
    const bool selected =
        std::all_of(shard.what.conditions.begin(), shard.what.conditions.end(), [&](const TagCondition& condition) {
          return !scopes.contains(condition.tag) || condition.matches(index_in(part.scopes, condition.tag));
        });
    if (selected && !part.experts) return false;
    any = any || selected;
  }
  return any;
}

bool has_label(const ModelGraph& model, const Chunk& chunk, std::string_view label) {
  const auto has = [&](const auto& ids) {
    return std::any_of(ids.begin(), ids.end(), [&](auto id) { return labelled(model[id].shape, label) != nullptr; });
  };
  return std::ranges::any_of(chunk.work, [&](const std::optional<PassWork>& work) {
    return work && (has(work->parameters) || has(work->writes) || has(work->reads));
  });
}

bool is_made_of_experts(const ModelGraph& model, const Chunk& chunk) {
  if (chunk.experts) return true;
  const PassWork* forward = chunk.find(Pass::F);
  if (!forward || forward->reads.empty()) return false;
  const auto all = [&](const std::vector<ValueId>& values) {
    return std::all_of(values.begin(), values.end(), [&](ValueId value) {
      return model[value].kind == ValueKind::Loss || labelled(model[value].shape, expert_label);
    });
  };
  return all(forward->reads) && all(forward->writes);
}

std::vector<AnnotatedPart> annotated_parts(const ModelGraph& model) {
  std::vector<AnnotatedPart> out;
  for (const Chunk& chunk : model.chunks) out.push_back({chunk.scopes, is_made_of_experts(model, chunk)});
  return out;
}

}  // namespace piper
