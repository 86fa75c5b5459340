#include "model/analytic/attention_chunk.h"

#include <fmt/format.h>

#include "model/analytic/dims.h"
#include "model/analytic/draft_parts.h"

namespace piper {
namespace {

void low_rank(WorkTally& tally, const ModelConfig& c, const std::string& name, int64_t rank, int64_t extra,
              int64_t out) {
  tally.linear(name + "_down", c.hidden, rank + extra, bias_of(c));
  tally.norm(name + "_norm", rank, norm_bias(c));
  tally.linear(name + "_up", rank, out, bias_of(c));
  tally.keep(rank, NeededBy::Both);    // the norm's input
  tally.keep(rank, NeededBy::Weight);  // the second projection's input
  tally.hand(rank + extra + rank + out);
  tally.inside(out);
}

/// Latent attention: q and (k, v) each through a narrow normalised projection; part of k is shared by all heads.
Heads latent_projections(WorkTally& tally, const ModelConfig& c) {
  const int64_t query = c.qk_nope_head_dim + c.qk_rope_head_dim, q = c.heads * query;
  if (c.q_lora_rank > 0) {
    low_rank(tally, c, "q", c.q_lora_rank, 0, q);
  } else {
    tally.linear("q", c.hidden, q, bias_of(c));
    tally.hand(q);
    tally.inside(q);
  }
  low_rank(tally, c, "kv", c.kv_lora_rank, c.qk_rope_head_dim, c.heads * (c.qk_nope_head_dim + c.v_head_dim));
  tally.pointwise((c.heads + 1) * c.qk_rope_head_dim, (c.heads + 1) * c.qk_rope_head_dim);
  return {query, c.v_head_dim, 2 * q + c.heads * c.v_head_dim};
}

}  // namespace

Heads plain_projections(WorkTally& tally, const ModelConfig& c) {
  const int64_t width = head_width(c), q = c.heads * width, kv = key_value_heads(c) * width;
  const auto projection = [&](const char* name, int64_t heads) {
    if (tally.unit().divided == Divided::Width)
      tally.linear(name, {tp(heads), fixed(width)}, {fixed(c.hidden)}, bias_of(c));
    else
      tally.linear(name, c.hidden, heads * width, bias_of(c));
  };
  projection("q", c.heads);
  projection("k", key_value_heads(c));
  projection("v", key_value_heads(c));
  tally.hand(q + 2 * kv);
  tally.inside(q);
  if (c.qk_norm) {
    tally.norm("q_norm", width, norm_bias(c), c.heads);
    tally.norm("k_norm", width, norm_bias(c), key_value_heads(c));
    tally.keep(q + kv, NeededBy::Both);  // the norms' inputs
    tally.hand(q + kv);
  }
  if (!has_learned_positions(c.arch)) tally.pointwise(q + kv, q + kv);  // rotary positions
  return {width, width, q + 2 * kv};
}

void attend(WorkTally& tally, const ModelConfig& c, const Heads& heads, int64_t sequence) {
  constexpr int64_t float32_bytes = 4;
  const int64_t out = c.heads * heads.value_width;
  if (c.flash_attention) {
    tally.scores(c.heads, heads.query_width, heads.value_width, heads.stored + out, 0);
    tally.keep_bytes(float32_bytes * c.heads, NeededBy::Input);
    return;
  }
  tally.scores(c.heads, heads.query_width, heads.value_width, heads.stored + out, c.dropout ? 6 : 4);
  tally.keep(c.heads * sequence, NeededBy::Input);  // softmax
  if (c.dropout) {
    tally.keep_bytes(c.heads * sequence, NeededBy::Input);  // mask
    tally.keep(c.heads * sequence, NeededBy::Input);        // softmax after dropout
  }
}

void add_attention(ChunkWriter& writer, int64_t index, const Flow& x, const Flow& out) {
  const ModelConfig& c = writer.config();
  ChunkDraft draft = residual_draft(fmt::format("layer.{}.attention", index), x, out);
  draft.scopes = {{"layer", static_cast<int>(index)}, {"attention", 0}};
  WorkTally tally(draft.name, writer.per_sample());
  input_norm(tally, c);
  const Heads heads = has_latent_attention(c.arch) ? latent_projections(tally, c) : plain_projections(tally, c);
  tally.keep(heads.stored, NeededBy::Input);
  attend(tally, c, heads, writer.sequence());
  // attention's result: read again by the output projection's backward, with flash attention also by its own
  tally.keep(c.heads * heads.value_width, c.flash_attention ? NeededBy::Both : NeededBy::Weight);
  tally.linear("out", c.heads * heads.value_width, c.hidden, bias_of(c));
  residual(tally, c, draft, out.gradients);
  writer.add(std::move(draft), tally);
}

}  // namespace piper
