#include "directives/placed_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/suggest.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// The instances of an outermost scope, if every chunk belongs to one.
std::optional<std::vector<int>> instances_of(const ModelGraph& model, const std::string& scope) {
  std::vector<int> of_chunk;
  std::vector<char> seen;
  for (const Chunk& chunk : model.chunks) {
    if (chunk.scopes.empty() || chunk.scopes[0].scope != scope) return std::nullopt;
    const int index = chunk.scopes[0].index;
    if (index < 0 || index >= static_cast<int>(model.chunks.size())) return std::nullopt;
    of_chunk.push_back(index);
    seen.resize(std::max(seen.size(), static_cast<size_t>(index) + 1), 0);
    seen[static_cast<size_t>(index)] = 1;
  }
  if (std::ranges::find(seen, 0) != seen.end()) return std::nullopt;
  return of_chunk;
}

Result<std::vector<int>> find_stages(const TrainingDag& dag, const Use& use, const SourceRange& where) {
  std::vector<std::string> names;
  for (const StageTags& stages : dag.stages) {
    if (stages.tag == use.stages) {
      for (size_t c = 0; c < stages.of_chunk.size(); ++c)
        if (stages.of_chunk[c] < 0)
          return error(ErrorCode::E313, where,
                       fmt::format("use: chunk {} belongs to no stage", dag.model->chunks[c].name))
              .help("let the place directive with stages=… select everything: place({}, …)");
      return stages.of_chunk;
    }
    names.push_back(stages.tag);
  }
  if (auto instances = instances_of(*dag.model, use.stages)) return *std::move(instances);
  return error(ErrorCode::E313, where, fmt::format("use: there are no stages called \"{}\"", use.stages))
      .help(names.empty() ? "make them: place({}, along=pp, stages=4)" : did_you_mean(use.stages, names));
}

Result<int> find_dim(const TrainingDag& dag, const Use& use, const SourceRange& where) {
  std::vector<std::string> names;
  for (size_t d = 0; d < dag.dims.size(); ++d) {
    if (dag.dims[d].name == use.microbatches) return static_cast<int>(d);
    names.push_back(dag.dims[d].name);
  }
  return error(ErrorCode::E313, where, fmt::format("use: the batch is not split along \"{}\"", use.microbatches))
      .help(names.empty() ? "split it: split(batch, parts=8, as=mb)" : did_you_mean(use.microbatches, names));
}

}  // namespace

Result<PlacedStages> PlacedStages::find(const TrainingDag& dag, const Use& use, DirectiveId by) {
  const SourceRange where = dag.where(by, {"stages", "timeline"});
  PIPER_TRY(std::vector<int> stage_of_chunk, find_stages(dag, use, where));
  PIPER_TRY(const int dim, find_dim(dag, use, dag.where(by, {"microbatches", "timeline"})));
  PlacedStages stages(dag, std::move(stage_of_chunk), dim);
  PIPER_CHECK(stages.check_one_group_each(where));
  return stages;
}

PlacedStages::PlacedStages(const TrainingDag& dag, std::vector<int> stage_of_chunk, int dim)
    : dag_(&dag), index_(dag), dim_(static_cast<size_t>(dim)) {
  chunks_.resize(static_cast<size_t>(*std::ranges::max_element(stage_of_chunk)) + 1);
  for (size_t c = 0; c < stage_of_chunk.size(); ++c)
    chunks_[static_cast<size_t>(stage_of_chunk[c])].push_back(ChunkId(c));
  for (size_t d = dim_ + 1; d < dag.dims.size(); ++d) stride_ *= dag.dims[d].parts;
  std::map<DeviceList, GroupId> first;
  for (size_t g = 0; g < dag.groups.group_count(); ++g) {
    DeviceList devices = dag.groups[GroupId(g)].devices;
    std::ranges::sort(devices);
    first_like_.push_back(first.emplace(std::move(devices), GroupId(g)).first->second);
  }
}

/// Stages that place has cut are on one group by construction; instances of a scope may be scattered.
Checked PlacedStages::check_one_group_each(const SourceRange& where) const {
  for (int s = 0; s < count(); ++s)
    for (int m = 0; m < microbatches(); ++m)
      for (const ChunkId chunk : chunks(s))
        if (const Node* node = find(chunk, Pass::F, m); first_like(node->group) != group(s, m))
          return error(ErrorCode::E313, where,
                       fmt::format("use: stage {} is placed on {} and on {}", s,
                                   print_devices(dag_->groups[group(s, m)].devices),
                                   print_devices(dag_->groups[node->group].devices)))
              .note(where_placed(s, m), "placed here")
              .note(dag_->where(node->placed_by, {"devices", "mesh", "stages"}), "and here")
              .help("place all chunks of a stage on the same devices");
  return Ok{};
}

int PlacedStages::microbatches() const {
  return dag_->dims[dim_].parts;
}

bool PlacedStages::has_backward(int stage) const {
  return std::ranges::any_of(chunks(stage), [&](ChunkId id) {
    const Chunk& chunk = (*dag_->model)[id];
    return chunk.find(Pass::B) || chunk.find(Pass::BI) || chunk.find(Pass::BW);
  });
}

const Node* PlacedStages::find(ChunkId chunk, Pass pass, int microbatch) const {
  const NodeId id = index_.find(chunk, pass, microbatch * stride_);
  return id.valid() ? &(*dag_)[id] : nullptr;
}

}  // namespace piper
