#include "model/analytic/mixture_chunks.h"

#include <fmt/format.h>

#include <optional>

#include "model/analytic/draft_parts.h"

namespace piper {
namespace {

/// Everything that passes between the three chunks of one layer.
struct Exchange {
  Flow x;           // gradients: from dispatch, from combine
  Flow dispatched;  // tokens in their slots
  Flow results;     // what the experts made of them
  Flow weights;     // of each token's choices
  ValueId choices;  // expert and slot of each token's choices, packed
  std::optional<Flow> shared;
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
             out};
  if (writer.config().shared_experts > 0) e.shared = writer.activation(chunk_name(index, "dispatch.shared"));
  return e;
}

/// Router: a linear layer and a softmax in float32 over the experts.
void route(WorkTally& tally, const ModelConfig& c) {
  constexpr int64_t float32_bytes = 4;
  tally.linear("router", c.hidden, c.experts, c.arch == Architecture::DeepSeekV3 ? Bias::Yes : Bias::No);
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
  draft.input_reads = {e.dispatched.gradients[0], e.weights.gradients[0], e.x.value, e.choices};
  draft.input_writes = {e.x.gradients[0]};
  draft.weight_reads = {e.x.value};
  WorkTally tally(draft.name, writer.per_sample());
  input_norm(tally, c);
  route(tally, c);
  if (e.shared) {
    feed_forward(tally, c, "shared_", c.shared_experts * c.moe_ffn);
    draft.writes.push_back(e.shared->value);
    draft.input_reads.push_back(e.shared->gradients[0]);
    draft.weight_reads.push_back(e.shared->gradients[0]);
  }
  writer.add(std::move(draft), tally);
}

void add_experts(ChunkWriter& writer, int64_t index, const Exchange& e) {
  const ModelConfig& c = writer.config();
  ChunkDraft draft;
  draft.name = chunk_name(index, "experts");
  draft.scopes = {{"layer", static_cast<int>(index)}, {"experts", 0}};
  draft.reads = {e.dispatched.value};
  draft.writes = {e.results.value};
  draft.input_reads = {e.results.gradients[0]};
  draft.input_writes = {e.dispatched.gradients[0]};
  draft.weight_reads = {e.dispatched.value, e.results.gradients[0]};
  WorkTally tally(draft.name, writer.per_slot());
  feed_forward(tally, c, "", c.moe_ffn);
  writer.add(std::move(draft), tally);
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
  WorkTally tally(draft.name, writer.per_sample());
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
  add_experts(writer, index, exchange);
  add_combine(writer, index, exchange);
}

}  // namespace piper
