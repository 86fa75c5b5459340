#include "model/model_graph.h"

#include <algorithm>

#include "base/saturate.h"

namespace piper {

std::optional<int> index_in(const std::vector<ScopeTag>& scopes, std::string_view scope) {
  for (const ScopeTag& tag : scopes)
    if (tag.scope == scope) return tag.index;
  return std::nullopt;
}

std::string_view name(Pass pass) {
  constexpr std::string_view names[] = {"F", "B", "BI", "BW", "R"};
  return names[static_cast<int>(pass)];
}

std::string_view name(Optimizer optimizer) {
  constexpr std::string_view names[] = {"sgd", "momentum", "adamw", "lion", "muon", "adafactor"};
  return names[static_cast<int>(optimizer)];
}

std::optional<Optimizer> optimizer_named(std::string_view text) {
  for (const Optimizer optimizer : all_optimizers)
    if (name(optimizer) == text) return optimizer;
  return std::nullopt;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> out;
  for (const Optimizer optimizer : all_optimizers) out.emplace_back(name(optimizer));
  return out;
}

int64_t moments(Optimizer optimizer) {
  constexpr int64_t numbers[] = {0, 1, 2, 1, 1, 0};
  return numbers[static_cast<int>(optimizer)];
}

Optimizer optimizer_of(const StepConfig& step, bool whole) {
  return step.optimizer == Optimizer::Muon && !whole ? Optimizer::AdamW : step.optimizer;
}

bool is_updated_whole(const StepConfig& step, std::string_view parameter) {
  return step.optimizer == Optimizer::Adafactor || std::ranges::find(step.matrices, parameter) != step.matrices.end();
}

bool is_hidden_matrix(std::string_view parameter, size_t dims) {
  return dims == 2 && parameter.find("layer") != parameter.npos && !parameter.ends_with("bias");  // of experts: vectors
}

int64_t PassWork::temporaries_on(const ShardCounts& shards, int64_t samples) const {
  if (const auto known = divided.find(shards); known != divided.end()) return known->second.at(samples);
  int64_t parts = 1;  // of tokens or heads: analytic models know how temporaries depend on the others
  for (const ShardRule& rule : shard_rules)
    if (rule.axis && rule_of(*rule.axis).divides_tokens) parts *= shards[rule.kind];
  const int64_t growing = saturating_multiply(ceil_divide(temporaries.per_sample, parts), samples);
  return saturating_add(temporaries.fixed, rows_in_buffer(growing, shards));
}

const PassWork* Chunk::find(Pass pass) const {
  const auto& slot = work[static_cast<size_t>(pass == Pass::R ? Pass::F : pass)];
  return slot ? &*slot : nullptr;
}

std::optional<BackwardParts> backward_parts(const Chunk& chunk) {
  const PassWork* whole = chunk.find(Pass::B);
  BackwardParts parts{chunk.find(Pass::BI), chunk.find(Pass::BW)};
  if (!whole || parts.input || parts.weight) return parts;
  if (whole->gradients.empty()) return BackwardParts{whole, nullptr};
  if (whole->writes.empty()) return BackwardParts{nullptr, whole};
  return std::nullopt;
}

bool has_batch_dimension(const Value& value) {
  for (const Dim& dim : value.shape)
    if (dim.per_sample && dim.label.empty()) return true;
  return false;
}

int64_t parameter_count(const ModelGraph& model) {
  int64_t count = 0;
  for (const Parameter& parameter : model.parameters) count = saturating_add(count, elements(parameter.shape, 0));
  return count;
}

ModelBuilder::ModelBuilder(std::string name, StepConfig step) {
  model_.name = std::move(name);
  model_.step = step;
}

ValueId ModelBuilder::value(std::string name, ValueKind kind, DType dtype, Shape shape) {
  model_.values.push_back({std::move(name), kind, dtype, std::move(shape)});
  return ValueId(model_.values.size() - 1);
}

ParameterId ModelBuilder::parameter(std::string name, DType dtype, Shape shape) {
  model_.parameters.push_back({std::move(name), dtype, std::move(shape)});
  return ParameterId(model_.parameters.size() - 1);
}

void ModelBuilder::freeze(ParameterId parameter) {
  model_.parameters[parameter.index()].frozen = true;
}
void ModelBuilder::set_tensor(ParameterId id, const std::vector<int64_t>& sizes) {
  Parameter& parameter = model_.parameters[id.index()];
  const bool same = std::ranges::equal(parameter.shape, sizes, {}, &Dim::size);
  parameter.tensor = same ? std::vector<int64_t>() : sizes;
}

void ModelBuilder::make_partial(ParameterId parameter) {
  model_.parameters[parameter.index()].partial = true;
}
void ModelBuilder::make_sequence_sharded(ChunkId chunk) {
  model_.chunks[chunk.index()].sequence_sharded = true;
}
void ModelBuilder::needs_all_tokens(ChunkId chunk, std::vector<ValueId> values, bool causal) {
  model_.chunks[chunk.index()].causal = causal;
  model_.chunks[chunk.index()].all_tokens = std::move(values);
}
void ModelBuilder::rotate(ChunkId chunk, int rotation, std::vector<ValueId> values, bool causal) {
  model_.chunks[chunk.index()].causal = causal;
  model_.chunks[chunk.index()].rotated = std::move(values);
  model_.chunks[chunk.index()].rotation = rotation;
}
void ModelBuilder::label_all_tokens(int ring) {
  model_.context = true;
  model_.ring = ring;
}
void ModelBuilder::make_partial(ValueId value, Partial how) {
  model_.values[value.index()].partial = how;
}

ChunkId ModelBuilder::chunk(std::string name, std::vector<ScopeTag> scopes) {
  model_.chunks.push_back({std::move(name), std::move(scopes), {}});
  return ChunkId(model_.chunks.size() - 1);
}

PassWork& ModelBuilder::work(ChunkId chunk, Pass pass) {
  auto& slot = model_.chunks[chunk.index()].work[static_cast<size_t>(pass)];
  if (!slot) slot.emplace();
  return *slot;
}

ModelGraph ModelBuilder::finish() && {
  return std::move(model_);
}

}  // namespace piper
