#include "model/analytic/mixture_chunks.h"

#include <fmt/format.h>

#include <optional>

#include "model/analytic/dims.h"
#include "model/analytic/draft_parts.h"

namespace piper {
namespace {

/// Everything that passes between the three chunks of one layer.
struct Exchange {
  Flow x;                       // gradients: from dispatch, from combine
  Flow dispatched;              // tokens in their slots
  Flow results;                 // what the experts made of them
  Flow weights;                 // of each token's choices
  ValueId choices;              // expert and slot of each token's choices, packed
  std::optional<ValueId> ends;  // without slots: of the rows of each expert
  std::optional<Flow> shared;
  std::optional<Flow> normed;  // where shared experts are sharded: they are a chunk of their own
  Flow out;
};

std::string chunk_name(int64_t index, const char* part) {
  return fmt::format("layer.{}.{}", index, part);
}

Exchange make_exchange(ChunkWriter& writer, int64_t index, const Flow& x, const Flow& out) {
  const std::string weights = chunk_name(index, "dispatch.weights");
  Exchange e{x,
             writer.slots(chunk_name(index, "dispatch.out")),
             writer.slots(chunk_name(index, "experts.out")),
             {writer.per_choice(weights, DType::Float32), {writer.per_choice("d." + weights, DType::Float32)}},
             writer.per_choice(chunk_name(index, "dispatch.choices"), DType::Int64),
             std::nullopt,
             std::nullopt,
             std::nullopt,
             out};
  if (writer.config().dropless) e.ends = writer.ends_of_rows(chunk_name(index, "dispatch.ends"));
  if (writer.config().shared_experts == 0) return e;
  e.shared = writer.activation(chunk_name(index, "dispatch.shared"));
  if (writer.is_sharded()) e.normed = writer.activation(chunk_name(index, "dispatch.normed"));
  return e;
}

/// Router: a linear layer and a softmax in float32 over the experts.
void route(WorkTally& tally, const ModelConfig& c) {
  constexpr int64_t float32_bytes = 4;
  tally.router("router", c.hidden, c.experts, has_router_bias(c) ? Bias::Yes : Bias::No);
  tally.keep_bytes(float32_bytes * c.experts, NeededBy::Input);  // probabilities
  tally.hand(c.experts);
  tally.inside(c.experts);
  tally.pointwise(c.experts, c.experts);
  tally.pointwise(c.hidden, c.top_k * c.hidden);  // each token to its slots
}

void add_dispatch(ChunkWriter& writer, int64_t index, const Exchange& e) {
  const ModelConfig& c = writer.config();
  ChunkDraft draft;
  draft.name = chunk_name(index, "dispatch");
  draft.scopes = {{"layer", static_cast<int>(index)}};
  draft.reads = {e.x.value};
  draft.writes = {e.dispatched.value, e.weights.value, e.choices};
  if (e.ends) draft.writes.push_back(*e.ends);
  draft.input_reads = {e.dispatched.gradients[0], e.weights.gradients[0], e.x.value, e.choices};
  draft.input_writes = {e.x.gradients[0]};
  draft.weight_reads = {e.x.value};
  WorkTally tally(draft.name, writer.per_sample());
  if (e.normed) {
    tally.norm("norm", c.hidden, norm_bias(c));
    tally.hand(c.hidden);
    draft.writes.push_back(e.normed->value);
    draft.input_reads.push_back(e.normed->gradients[0]);
    draft.weight_reads.push_back(e.normed->value);
  } else {
    input_norm(tally, c);
  }
  route(tally, c);
  if (e.shared && !e.normed) {
    feed_forward(tally, c, "shared_", c.shared_experts * c.moe_ffn);
    draft.writes.push_back(e.shared->value);
    draft.input_reads.push_back(e.shared->gradients[0]);
    draft.weight_reads.push_back(e.shared->gradients[0]);
  }
  writer.add(std::move(draft), tally);
}

/// Every token visits them; each device has a part of their width, and of the sum.
void add_shared(ChunkWriter& writer, int64_t index, const Flow& normed, const Flow& shared) {
  const ModelConfig& c = writer.config();
  ChunkDraft draft = draft_between(chunk_name(index, "shared"), {{"layer", static_cast<int>(index)}}, normed, shared);
  draft.weight_reads = {normed.value, shared.gradients[0]};
  WorkUnit unit = writer.per_sample();
  unit.divided = Divided::Width;
  WorkTally tally(chunk_name(index, "dispatch"), unit);
  feed_forward(tally, c, "shared_", c.shared_experts * c.moe_ffn);
  writer.add(std::move(draft), tally);
  writer.make_partial(shared.value);
  writer.make_partial(normed.gradients[0]);
}

ChunkDraft expert_draft(int64_t index, const char* name, const Flow& in, const Flow& out) {
  ChunkDraft draft =
      draft_between(chunk_name(index, name), {{"layer", static_cast<int>(index)}, {"experts", 0}}, in, out);
  draft.weight_reads = out.gradients;
  return draft;
}

void add_expert_chunk(ChunkWriter& writer, ChunkDraft draft, const WorkTally& tally, std::optional<ValueId> ends) {
  if (ends)
    writer.add_routed(std::move(draft), tally, *ends);
  else
    writer.add(std::move(draft), tally);
}

/// The bias of the last product, where every device has a part of the sum in front of it.
void add_bias(ChunkWriter& writer, int64_t index, const Flow& sum, const Flow& out, std::optional<ValueId> ends) {
  WorkTally tally(chunk_name(index, "experts"), writer.per_slot());
  tally.pointwise(writer.config().hidden, writer.config().hidden);
  tally.bias("down", {fixed(writer.config().hidden)});
  add_expert_chunk(writer, expert_draft(index, "experts.bias", sum, out), tally, ends);
}

void add_experts(ChunkWriter& writer, int64_t index, const Exchange& e) {
  const ModelConfig& c = writer.config();
  WorkUnit unit = writer.per_slot();
  if (writer.is_sharded()) unit.divided = Divided::Width;
  const bool bias_apart = c.bias && writer.is_sharded();
  const Flow out = bias_apart ? writer.slots(chunk_name(index, "experts.sum")) : e.results;
  ChunkDraft draft = expert_draft(index, "experts", e.dispatched, out);
  draft.weight_reads.insert(draft.weight_reads.begin(), e.dispatched.value);
  WorkTally tally(draft.name, unit);
  feed_forward(tally, c, "", c.moe_ffn);
  add_expert_chunk(writer, std::move(draft), tally, e.ends);
  if (writer.is_sharded()) {
    writer.make_partial(out.value);
    writer.make_partial(e.dispatched.gradients[0]);
  }
  if (bias_apart) add_bias(writer, index, out, e.results, e.ends);
}

void add_combine(ChunkWriter& writer, int64_t index, const Exchange& e) {
  const ModelConfig& c = writer.config();
  ChunkDraft draft;
  draft.name = chunk_name(index, "combine");
  draft.scopes = {{"layer", static_cast<int>(index)}};
  draft.reads = {e.results.value, e.weights.value, e.choices, e.x.value};
  draft.writes = {e.out.value};
  draft.input_reads = e.out.gradients;
  draft.input_reads.insert(draft.input_reads.end(), {e.results.value, e.weights.value, e.choices});
  draft.input_writes = {e.results.gradients[0], e.weights.gradients[0], e.x.gradients[1]};
  WorkTally tally(chunk_name(index, "dispatch"), writer.per_sample());
  if (e.normed && c.bias) {  // behind the sum
    tally.bias("shared_down", {fixed(c.hidden)});
    draft.weight_reads = e.out.gradients;
  }
  tally.pointwise((c.top_k + 1) * c.hidden, c.hidden);
  if (e.shared) {
    draft.reads.push_back(e.shared->value);
    draft.input_writes.push_back(e.shared->gradients[0]);
    tally.pointwise(c.hidden, 0);
  }
  if (c.dropout) tally.keep_bytes(c.hidden, NeededBy::Input);  // mask
  writer.add(std::move(draft), tally);
}

}  // namespace

void add_mixture(ChunkWriter& writer, int64_t index, const Flow& x, const Flow& out) {
  const Exchange exchange = make_exchange(writer, index, x, out);
  add_dispatch(writer, index, exchange);
  if (exchange.normed) add_shared(writer, index, *exchange.normed, *exchange.shared);
  add_experts(writer, index, exchange);
  add_combine(writer, index, exchange);
}

}  // namespace piper
