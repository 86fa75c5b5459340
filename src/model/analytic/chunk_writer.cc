#include "model/analytic/chunk_writer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/saturate.h"
#include "model/analytic/dims.h"

namespace piper {
namespace {

void append_new(std::vector<ValueId>& to, const std::vector<ValueId>& from) {
  for (const ValueId value : from)
    if (std::find(to.begin(), to.end(), value) == to.end()) to.push_back(value);
}

}  // namespace

ChunkWriter::ChunkWriter(const ModelConfig& config, const StepConfig& step, LayerForm form, TokenForm tokens)
    : config_(config),
      step_(step),
      form_(form),
      tokens_(tokens),
      builder_(config.name.empty() ? std::string(name(config.arch)) : config.name, step) {}

/// Slots of one expert: ceil(capacity_factor * top_k * sequence * samples / experts), the factor in ten-thousandths.
Dim ChunkWriter::capacity() const {
  constexpr int64_t parts = 10'000;
  const auto factor = static_cast<int64_t>(std::llround(config_.capacity_factor * parts));
  const int64_t size = saturating_multiply(factor, config_.top_k * sequence());
  const int64_t divisor = parts * config_.experts;
  const int64_t common = std::gcd(size, divisor);
  return {size / common, true, divisor / common, std::string(capacity_label)};
}

WorkUnit ChunkWriter::per_sample() const {
  const Dim rows{sequence(), true, 1, inner_tokens().label};
  return {sequence(), 1, rows, 0, bytes_of(step_.weights), bytes_of(step_.gradients)};
}

Shape ChunkWriter::slot_shape(const Dim& width) const {
  if (config_.dropless) {
    Dim rows = per_slot().all_rows;
    rows.label = routed_label;
    return {rows, width};
  }
  return {per_expert(config_.experts), capacity(), width};
}

WorkUnit ChunkWriter::per_slot() const {
  const int64_t choices = saturating_multiply(config_.top_k, sequence());
  const Dim of_one = config_.dropless ? Dim{choices, true, 1, {}} : capacity();
  const int64_t slots =
      config_.dropless ? choices : ceil_divide(saturating_multiply(config_.experts, of_one.size), of_one.divisor);
  WorkUnit out{1, slots, of_one, config_.experts, bytes_of(step_.weights), bytes_of(step_.gradients)};
  out.in_first = is_reference(config_.arch);
  out.slots = !config_.dropless;
  return out;
}

ValueId ChunkWriter::input(std::string name) {
  return builder_.value(std::move(name), ValueKind::Input, DType::Int64, {samples(), inner_tokens()});
}

ValueId ChunkWriter::loss(std::string name) {
  return builder_.value(std::move(name), ValueKind::Loss, DType::Float32, {});
}

Flow ChunkWriter::activation(const std::string& name, const std::vector<std::string>& readers) {
  const Shape shape = {samples(), is_sharded() ? tokens(sequence()) : fixed(sequence()), fixed(config_.hidden)};
  Flow flow{builder_.value(name, ValueKind::Computed, dtype(), shape), {}};
  for (const std::string& reader : readers)
    flow.gradients.push_back(
        builder_.value("d." + name + (reader.empty() ? "" : "." + reader), ValueKind::Computed, dtype(), shape));
  return flow;
}

Flow ChunkWriter::inner(const std::string& name, int64_t elements, DType dtype) {
  const Shape shape = {samples(), inner_tokens(), tp(elements)};
  return {builder_.value(name, ValueKind::Computed, dtype, shape),
          {builder_.value("d." + name, ValueKind::Computed, dtype, shape)}};
}

Flow ChunkWriter::heads(const std::string& name, int64_t count, int64_t width) {
  if (!divides_context()) return inner(name, count * width);
  const Shape shape = {samples(), inner_tokens(), tp(count), fixed(width)};
  return {builder_.value(name, ValueKind::Computed, dtype(), shape),
          {builder_.value("d." + name, ValueKind::Computed, dtype(), shape)}};
}

ValueId ChunkWriter::of_heads(std::string name, DType dtype, int64_t count, std::optional<int64_t> width) {
  Shape shape = {samples(), inner_tokens(), tp(count)};
  if (width) shape.push_back(fixed(*width));
  return builder_.value(std::move(name), ValueKind::Computed, dtype, std::move(shape));
}

int64_t ChunkWriter::key_copies() const {
  const int64_t heads = key_value_heads(config_);
  return tokens_.key_heads > heads && tokens_.key_heads % heads == 0 ? tokens_.key_heads / heads : 1;
}

ValueId ChunkWriter::per_token(std::string name, Partial partial) {
  const ValueId value =
      builder_.value(std::move(name), ValueKind::Computed, DType::Float32, {samples(), inner_tokens()});
  builder_.make_partial(value, partial);
  return value;
}
ValueId ChunkWriter::partial_number(std::string name) {
  const ValueId value = builder_.value(std::move(name), ValueKind::Computed, DType::Float32, {});
  builder_.make_partial(value);
  return value;
}

Flow ChunkWriter::slots(const std::string& name) {
  const Shape shape = slot_shape(fixed(config_.hidden));
  return {builder_.value(name, ValueKind::Computed, dtype(), shape),
          {builder_.value("d." + name, ValueKind::Computed, dtype(), shape)}};
}

ValueId ChunkWriter::ends_of_rows(std::string name) {
  return builder_.value(std::move(name), ValueKind::Computed, DType::Int32, {per_expert(config_.experts)});
}

ValueId ChunkWriter::per_choice(std::string name, DType dtype) {
  return builder_.value(std::move(name), ValueKind::Computed, dtype, {samples(), inner_tokens(), fixed(config_.top_k)});
}

Dim ChunkWriter::inner_tokens() const {
  return divides_context() ? tokens(sequence()) : fixed(sequence());
}

Shape ChunkWriter::blob_shape(const WorkUnit& unit, int64_t bytes) const {
  if (unit.divided == Divided::Tokens) return {samples(), tokens(unit.rows), fixed(bytes / unit.rows)};
  if (divides_context() && unit.experts == 0) {
    const int64_t of_token = bytes / unit.rows;
    return {samples(), tokens(unit.rows), unit.divided == Divided::Width ? tp(of_token) : fixed(of_token)};
  }
  const Dim of_one = unit.divided == Divided::Width ? tp(bytes) : fixed(bytes);
  if (unit.experts == 0) return {samples(), of_one};
  return slot_shape(of_one);
}

std::vector<ParameterId> ChunkWriter::parameters(const WorkTally& tally, bool only_needed_by_backward) {
  std::vector<ParameterId> ids;
  for (const TalliedParameter& p : tally.parameters()) {
    if (only_needed_by_backward && !p.needed_by_backward) continue;
    auto found = parameter_ids_.find(p.name);
    if (found == parameter_ids_.end()) {
      found = parameter_ids_.emplace(p.name, builder_.parameter(p.name, step_.weights, p.shape)).first;
      if (step_.optimizer == Optimizer::Muon && is_hidden_matrix(p.name, p.shape.size())) builder_.add_matrix(p.name);
      // of tokens, or of heads, on one device only
      if (tally.unit().divided != Divided::Nothing && !labelled(p.shape, tp_label))
        builder_.make_partial(found->second);
    }
    ids.push_back(found->second);
  }
  return ids;
}

void ChunkWriter::add_forward(ChunkId chunk, const ChunkDraft& draft, const WorkTally& tally) {
  PassWork& work = builder_.work(chunk, Pass::F);
  work.reads = draft.reads;
  work.writes = draft.writes;
  work.parameters = parameters(tally, false);
  work.flops = tally.flops(Pass::F);
  work.bytes_moved = tally.moved(Pass::F);
  work.operators = tally.operators(Pass::F);
  work.temporaries = tally.temporaries(Pass::F);
}

/// BI needs parameters and BW contributes to their gradients; B does both.
void ChunkWriter::add_backward(ChunkId chunk, Pass pass, const WorkTally& tally, PassWork work) {
  if (pass != Pass::BW && !work.writes.empty()) work.parameters = parameters(tally, true);
  if (pass != Pass::BI) work.gradients = parameters(tally, false);
  work.flops = tally.flops(pass);
  work.bytes_moved = tally.moved(pass);
  work.operators = tally.operators(pass);
  work.temporaries = tally.temporaries(pass);
  builder_.work(chunk, pass) = std::move(work);
}

void ChunkWriter::add(ChunkDraft draft, const WorkTally& tally) {
  add_passes(std::move(draft), tally);
}

void ChunkWriter::add_routed(ChunkDraft draft, const WorkTally& tally, ValueId ends) {
  draft.reads.push_back(ends);
  draft.input_reads.push_back(ends);
  draft.weight_reads.push_back(ends);
  builder_.route(add_passes(std::move(draft), tally), ends);
}

ChunkId ChunkWriter::add_passes(ChunkDraft draft, const WorkTally& tally) {
  const bool has_input_part = !draft.input_writes.empty(), has_weight_part = !tally.parameters().empty();
  const auto blob = [&](const char* suffix, int64_t bytes) {
    return builder_.value(draft.name + suffix, ValueKind::Computed, DType::Int8, blob_shape(tally.unit(), bytes));
  };
  PassWork input, weight;
  input.reads = draft.input_reads;
  input.writes = draft.input_writes;
  weight.reads = draft.weight_reads;
  if (tally.kept_for_input() > 0) {
    draft.writes.push_back(blob(".saved", tally.kept_for_input()));
    input.reads.push_back(draft.writes.back());
  }
  if (tally.kept_for_weight() > 0) {
    draft.writes.push_back(blob(".kept", tally.kept_for_weight()));
    weight.reads.push_back(draft.writes.back());
    if (tally.input_reads_kept_for_weight()) input.reads.push_back(draft.writes.back());
  }
  PassWork whole;
  whole.reads = input.reads;
  append_new(whole.reads, weight.reads);
  whole.writes = input.writes;
  if (has_input_part && has_weight_part && tally.handed() > 0) {
    input.writes.push_back(blob(".handed", tally.handed()));
    weight.reads.push_back(input.writes.back());
  }
  const ChunkId chunk = builder_.chunk(draft.name, draft.scopes);
  if (tally.unit().divided == Divided::Tokens) builder_.make_sequence_sharded(chunk);
  if (draft.rotation)
    builder_.rotate(chunk, *draft.rotation, draft.rotated, draft.causal);
  else if (divides_context())
    builder_.needs_all_tokens(chunk, draft.all_tokens, draft.causal);
  add_forward(chunk, draft, tally);
  if (!has_input_part && !has_weight_part) return chunk;  // nothing to do in backward
  if (!has_input_part) weight.reads = whole.reads;
  add_backward(chunk, Pass::B, tally, std::move(whole));
  if (has_input_part) add_backward(chunk, Pass::BI, tally, std::move(input));
  if (has_weight_part) add_backward(chunk, Pass::BW, tally, std::move(weight));
  return chunk;
}

}  // namespace piper
