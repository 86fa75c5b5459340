#include "ir/local_size.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/invariant.h"
#include "base/saturate.h"
#include "ir/placement.h"
#include "model/element_types.h"
#include "model/float8.h"
#include "model/whole_state.h"

namespace piper {

int sample_parts(const TrainingDag& dag, GroupId group) {
  return dag.groups[group].size() / dag.devices_per_sample();
}

int data_parts(const TrainingDag& dag, GroupId group) {
  return dag.groups[group].size() / dag.tp().size;
}

int64_t samples_on(const TrainingDag& dag, GroupId group) {
  return dag.model->step.batch / dag.slices() / sample_parts(dag, group);
}

ShardCounts shard_counts(const TrainingDag& dag, const Residence& residence) {
  ShardCounts out;
  for (const Sharding& sharding : residence.shardings) {
    if (!sharding.along) continue;
    out[sharding.kind] = dag.groups[*sharding.along].part_size;
    if (sharding.kind == ShardKind::Expert) out.buffer = sharding.buffer;
  }
  return out;
}

int token_shard(const TrainingDag& dag, int position) {
  return position / dag.tp().size % dag.shared[SampleAxis::Cp].size;
}

namespace {

bool has_uneven_attention(const TrainingDag& dag, ChunkId chunk) {
  const auto divides_tokens = [](const Residence& residence) { return residence.find(ShardKind::Context) != nullptr; };
  return (*dag.model)[chunk].causal && dag.token_order == TokenOrder::Contiguous &&
         dag.shared[SampleAxis::Cp].size > 1 && std::ranges::any_of(dag.residences[chunk.index()], divides_tokens);
}

}  // namespace

bool has_uneven_attention(const TrainingDag& dag) {
  for (size_t c = 0; c < dag.model->chunks.size(); ++c)
    if (has_uneven_attention(dag, ChunkId(c))) return true;
  return false;
}

int different_works(const TrainingDag& dag, const Node& node) {
  return is_compute(node) && has_uneven_attention(dag, node.tags.chunk) ? dag.shared[SampleAxis::Cp].size : 1;
}

int work_of_device(const TrainingDag& dag, const Node& node, int device) {
  if (different_works(dag, node) == 1) return 0;
  const DeviceList& devices = dag.groups[node.group].devices;
  return token_shard(dag, static_cast<int>(std::ranges::find(devices, device) - devices.begin()));
}

namespace {

LinearProducts linear_products(const TrainingDag& dag, ChunkId chunk) {
  return dag.float8.contains(chunk) ? LinearProducts::Float8 : LinearProducts::AsStored;
}

}  // namespace

int64_t local_temporaries(const TrainingDag& dag, ChunkId chunk, const PassWork& work, GroupId group) {
  const ShardCounts shards = shard_counts(dag, dag.residence(chunk, group));
  const int64_t samples = samples_on(dag, group), known = work.temporaries_on(shards, samples);
  if (!dag.float8.contains(chunk) || (*dag.model)[chunk].float8 || !work.operators) return known;
  return saturating_add(known, float8_temporaries(on_device(*work.operators, samples, shards)));
}

DeviceWork local_work(const TrainingDag& dag, ChunkId chunk, const PassWork& work, GroupId group, int which) {
  const int64_t samples = samples_on(dag, group);
  const Residence& residence = dag.residence(chunk, group);
  const ShardCounts shards = shard_counts(dag, residence);
  int64_t parts = 1;
  for (const SampleAxisRule& rule : sample_axes)
    if (residence.group_along(rule.axis)) parts *= dag.shared[rule.axis].size;
  // what does not grow with the samples are parameters: those of the experts that are here
  const Amount bytes{work.bytes_moved.fixed / shards[ShardKind::Expert], work.bytes_moved.per_sample};
  DeviceWork out{work.flops.at(samples) / parts, bytes.at(samples) / parts, {}};
  if (work.operators) out.operators = on_device(*work.operators, samples, shards);
  out = with_linear_products(std::move(out), linear_products(dag, chunk), dag.model->step.weights);
  if (!has_uneven_attention(dag, chunk)) return out;
  // of P blocks the r-th looks at r before it and half of itself, the mean is P / 2; and so with every step of a ring
  const Chunk& attention = (*dag.model)[chunk];
  const int64_t in_step = attention.rotation == 0 ? 1 : attention.rotation <= which ? 2 : 0;
  const int64_t looks_at = attention.rotation ? in_step : 2 * which + 1,
                mean = attention.rotation ? 1 : dag.shared[SampleAxis::Cp].size;
  const auto scale = [&](int64_t& amount) { amount = saturating_multiply(amount, looks_at) / mean; };
  scale(out.flops);
  if (out.operators)
    for (MatrixProduct& product : out.operators->products) {
      scale(product.rows);
      product.rows = std::max<int64_t>(product.rows, 1);
    }
  return out;
}

std::optional<size_t> sample_dimension(const Shape& shape) {
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] == Dim{1, true, 1, ""}) return d;
  return std::nullopt;
}

namespace {

bool is_exchange(const Node& node, CollectiveKind kind) {
  const auto* collective = std::get_if<Collective>(&node.op);
  return collective && collective->kind == kind && collective->item.is_value();
}

/// What comes to the rows of a region that is divided: rows, and where those of each expert end.
bool brings_rows(const TrainingDag& dag, const Node& node, const Value& value) {
  return is_exchange(node, CollectiveKind::AllToAll) && labelled(value.shape, routed_label) &&
         !leaves_experts(dag, node);
}
bool brings_ends(const TrainingDag& dag, const Node& node, ValueId value) {
  return is_exchange(node, CollectiveKind::AllGather) && (*dag.model)[node.tags.chunk].routed_by == value;
}

}  // namespace

int64_t row_buffer(const TrainingDag& dag, const Node& node) {
  const auto& collective = std::get<Collective>(node.op);
  if (!collective.item.is_value() || !node.tags.chunk.valid() || !(*dag.model)[node.tags.chunk].routed_by) return 0;
  const ValueId value = collective.item.value_id();
  const bool exchanges = collective.kind == CollectiveKind::AllToAll || collective.kind == CollectiveKind::Rounds;
  const bool rows = exchanges && labelled((*dag.model)[value].shape, routed_label);
  if (!rows && !brings_ends(dag, node, value)) return 0;
  return shard_counts(dag, dag.residence(node.tags.chunk, node.group)).buffer;
}

/// Of a region's own sharding only experts divide what it writes as such; whether devices that share samples do,
/// placements say.
ShardCounts written_shards(const TrainingDag& dag, const Node& writer, ValueId value) {
  ShardCounts out;
  if (is_compute(writer) || brings_rows(dag, writer, (*dag.model)[value])) {
    const ShardCounts inside = shard_counts(dag, dag.residence(writer.tags.chunk, writer.group));
    out[ShardKind::Expert] = inside[ShardKind::Expert];
    out.buffer = inside.buffer;
  }
  for (const ShardRule& rule : shard_rules) {
    if (!rule.axis) continue;
    const Placement placement = is_compute(writer) ? wanted_along(*rule.axis, dag, writer, value)
                                                   : placement_along(*rule.axis, dag, writer, value);
    if (placement.label == rule.label) out[rule.kind] = dag.shared[*rule.axis].size;
  }
  return out;
}

int64_t local_bytes(const Value& value, int64_t samples, const ShardCounts& shards) {
  int64_t bytes = bytes_of(value.dtype);
  for (const Dim& dim : value.shape) bytes = saturating_multiply(bytes, local_extent(dim, samples, shards));
  return bytes;
}

int64_t written_bytes(const TrainingDag& dag, const Node& writer, ValueId id) {
  const Value& value = (*dag.model)[id];
  const int64_t samples = samples_on(dag, writer.group);
  if (brings_ends(dag, writer, id)) {  // of all devices, then of the experts that are here
    const int64_t parts = shard_counts(dag, dag.residence(writer.tags.chunk, writer.group))[ShardKind::Expert];
    const int64_t each = local_bytes(value, samples, {});
    return saturating_add(saturating_multiply(parts, each), each / parts);
  }
  return local_bytes(value, samples, written_shards(dag, writer, id));
}

int64_t rounds_temporaries(const TrainingDag& dag, const Node& rounds) {
  const Chunk& chunk = (*dag.model)[rounds.tags.chunk];
  const ShardCounts shards = shard_counts(dag, dag.residence(rounds.tags.chunk, rounds.group));
  const int64_t samples = samples_on(dag, rounds.group);
  const std::vector<const PassWork*> works = works_of(dag, rounds);
  std::set<ValueId> values;  // that are there at once
  int64_t message = 0, inside = 0;
  for (const PassWork* work : works) {
    values.insert(work->reads.begin(), work->reads.end());
    values.insert(work->writes.begin(), work->writes.end());
    inside = std::max(inside, work->temporaries_on(shards, samples));
  }
  int64_t bytes = 0;
  for (const ValueId id : values) {
    const int64_t size = local_bytes((*dag.model)[id], samples, shards);
    bytes = saturating_add(bytes, size);
    if (id != chunk.routed_by) message = std::max(message, size);
  }
  return saturating_add(bytes, saturating_add(message, inside));
}

int64_t moved_bytes(const TrainingDag& dag, const Node& node) {
  if (const auto* transfer = std::get_if<Transfer>(&node.op)) return written_bytes(dag, node, transfer->value);
  const auto& [kind, item, over, by] = std::get<Collective>(node.op);
  if (item.is_value()) {
    const Value& value = (*dag.model)[item.value_id()];
    if (kind == CollectiveKind::AllToAll && labelled(value.shape, routed_label))  // as many as go out
      return local_bytes(value, samples_on(dag, node.group), {});
    if (kind == CollectiveKind::Rounds) {  // of a balanced load: rows there and back, and those of gradients
      const auto times = static_cast<int64_t>(works_of(dag, node).size()) + 1;
      return saturating_multiply(times, local_bytes(value, samples_on(dag, node.group), {}));
    }
    const int64_t written = written_bytes(dag, node, item.value_id());
    return kind == CollectiveKind::ReduceScatter ? saturating_multiply(written, dag.groups[over].part_size) : written;
  }
  if (item.kind == Item::Kind::Scalars) return scalar_bytes(dag);
  const Bucket& bucket = dag[item.bucket_id()];
  if (item.kind == Item::Kind::Directions)
    return saturating_multiply(
        saturating_multiply(updated_elements(dag, bucket, holder_on(bucket, node.group)), dag.groups[over].part_size),
        bytes_of(dag.model->step.gradients));
  return saturating_multiply(bucket.elements,
                             bytes_of(item.kind == Item::Kind::Weights ? bucket.dtype : dag.model->step.gradients));
}

int64_t whole_elements(const TrainingDag& dag, const Bucket& bucket, const Holder& holder) {
  // several groups reduce with each other what each device has summed up of its own group's copies
  const bool padded = holder.zero > 0 || bucket.holders.size() > 1;
  return padded ? saturating_multiply(shard_elements(dag, bucket, holder), dag.groups[holder.copies].part_size)
                : bucket.elements;
}

int64_t shard_elements(const TrainingDag& dag, const Bucket& bucket, const Holder& holder) {
  return ceil_divide(bucket.elements, dag.groups[holder.copies].part_size);
}

int64_t updated_elements(const TrainingDag& dag, const Bucket& bucket, const Holder& holder) {
  return holder.zero == 0 ? whole_elements(dag, bucket, holder) : shard_elements(dag, bucket, holder);
}

int64_t optimizer_bytes(const StepConfig& step, DType weights, Optimizer kind) {
  return state_bytes(element_types(step, weights), kind, 1);
}

int64_t scalar_bytes(const TrainingDag& dag) {
  int64_t numbers = 2;
  if (dag.model->step.optimizer == Optimizer::Adafactor)
    for (const Bucket& bucket : dag.buckets) numbers += bucket.matrices ? std::ssize(bucket.parameters) : 0;
  return numbers * bytes_of(DType::Float64);
}

int64_t whole_state_bytes(const TrainingDag& dag, const Bucket& bucket) {
  const StepConfig& step = dag.model->step;
  int64_t numbers = 0;
  for (const ParameterId p : bucket.parameters)
    numbers = saturating_add(numbers, whole_state_count(optimizer_of(step, bucket.matrices), (*dag.model)[p]));
  return saturating_multiply(numbers, bytes_of(element_types(step, bucket.dtype).moments));
}

namespace {

/// Of an element: the gradient of a whole parameter, and what is made of it.
int64_t temporaries_of_element(const ElementTypes& types, Optimizer optimizer) {
  const int64_t computed = bytes_of(types.arithmetic());
  if (optimizer == Optimizer::Adafactor) {
    constexpr int64_t together = 4;  // the gradient, what is estimated, and the part of this device: before and after
    return bytes_of(types.gradients) + together * computed;
  }
  constexpr int64_t together = 4;  // the matrix before and after a step of the iteration, and two products of no more
  const int64_t iterated = bytes_of(types.arithmetic() == DType::Float64 ? DType::Float64 : DType::BFloat16);
  return bytes_of(types.gradients) + together * iterated + 2 * computed;
}

}  // namespace

int64_t matrix_temporaries(const TrainingDag& dag, const Bucket& bucket) {
  const StepConfig& step = dag.model->step;
  const int64_t element = temporaries_of_element(element_types(step, bucket.dtype), step.optimizer);
  int64_t largest = 0;
  for (const ParameterId p : bucket.parameters) largest = std::max(largest, elements((*dag.model)[p].shape, 0));
  return saturating_multiply(largest, element);
}

namespace {

/// Five steps of Newton and Schulz, each three products, of a matrix of so many elements, as if it were square.
int64_t iteration_flops(int64_t elements) {
  constexpr double products = 5 * 3, flops = 2;
  const double side = std::sqrt(static_cast<double>(elements));
  return static_cast<int64_t>(std::min(products * flops * side * static_cast<double>(elements), 1e18));
}

}  // namespace

DeviceWork update_work(const TrainingDag& dag, const Node& update) {
  const Bucket& bucket = dag[std::get<Update>(update.op).bucket];
  const Holder& holder = holder_on(bucket, update.group);
  const int64_t elements = holder.zero == 0 ? bucket.elements : shard_elements(dag, bucket, holder);
  DeviceWork work = update_work(dag.model->step, bucket.dtype, elements);
  const bool iterates = bucket.matrices && dag.model->step.optimizer == Optimizer::Muon;
  if (!iterates || std::get<Update>(update.op).phase == UpdatePhase::Directions) return work;
  const int64_t holders = holder.zero == 0 ? 1 : dag.groups[holder.copies].part_size;
  for (const ParameterId p : bucket.parameters)
    work.flops = saturating_add(work.flops, iteration_flops(piper::elements((*dag.model)[p].shape, 0)) / holders);
  return work;
}

DeviceWork update_work(const StepConfig& step, DType weights, int64_t elements) {
  constexpr int64_t flops_per_element = 16;  // AdamW with clipping
  const int64_t element =
      bytes_of(step.gradients) + bytes_of(weights) + 2 * optimizer_bytes(step, weights, step.optimizer);
  return {saturating_multiply(elements, flops_per_element), saturating_multiply(elements, element), {}};
}

const Holder& holder_on(const Bucket& bucket, GroupId group) {
  for (const Holder& holder : bucket.holders)
    if (holder.group == group) return holder;
  internal_error("a bucket has a holder on every group that uses it");
}

}  // namespace piper
