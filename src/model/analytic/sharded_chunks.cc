#include "model/analytic/sharded_chunks.h"

#include <fmt/format.h>

#include "model/analytic/attention_chunk.h"
#include "model/analytic/dims.h"
#include "model/analytic/draft_parts.h"
#include "model/analytic/ring_attention.h"

namespace piper {
namespace {

/// One block of a layer, part by part.
class BlockParts {
 public:
  BlockParts(ChunkWriter& writer, int64_t index, const std::string& name)
      : writer_(writer), config_(writer.config()), prefix_(fmt::format("layer.{}.{}", index, name)) {
    scopes_ = {{"layer", static_cast<int>(index)}};
    if (name == "attention") scopes_.push_back({"attention", 0});
  }

  /// `x` normalised, token by token.
  Flow norm(const Flow& x) {
    const Flow out = writer_.activation(prefix_ + ".norm.out");
    writer_.make_partial(out.gradients[0]);
    ChunkDraft draft = this->draft(".norm");
    draft.reads = {x.value};
    draft.writes = {out.value};
    draft.input_reads = draft.weight_reads = {out.gradients[0], x.value};
    draft.input_writes = {x.gradients[0]};
    WorkTally tally = this->tally(Divided::Tokens);
    tally.norm("norm", config_.hidden, norm_bias(config_));
    writer_.add(std::move(draft), tally);
    return out;
  }

  /// Each device has a part of the sum.
  Flow part_of_sum(const std::string& name) {
    const Flow out = writer_.activation(prefix_ + name);
    writer_.make_partial(out.value);
    return out;
  }

  /// The bias of the last product, dropout and residual, token by token.
  void residual(const Flow& x, const Flow& sum, const Flow& out, const std::string& last) {
    ChunkDraft draft = this->draft(".residual");
    draft.reads = {x.value, sum.value};
    draft.writes = {out.value};
    draft.input_reads = out.gradients;
    draft.input_writes = {x.gradients[1], sum.gradients[0]};
    WorkTally tally = this->tally(Divided::Tokens);
    if (config_.bias) tally.bias(last, {fixed(config_.hidden)});
    piper::residual(tally, config_, draft, config_.bias ? out.gradients : std::vector<ValueId>{});
    writer_.add(std::move(draft), tally);
  }

  /// A chunk whose products are sharded: reads `in`, writes `out`, keeps `in` for the gradients of its weights.
  ChunkDraft products(const std::string& suffix, const Flow& in, const Flow& out) const {
    ChunkDraft draft = draft_between(prefix_ + suffix, scopes_, in, out);
    draft.weight_reads = {in.value};
    return draft;
  }

  ChunkDraft draft(const std::string& suffix) const {
    ChunkDraft out;
    out.name = prefix_ + suffix;
    out.scopes = scopes_;
    return out;
  }
  WorkTally tally(Divided divided) const {
    WorkUnit unit = writer_.per_sample();
    unit.divided = divided;
    return WorkTally(prefix_, unit);
  }
  const std::string& prefix() const { return prefix_; }
  const std::vector<ScopeTag>& scopes() const { return scopes_; }
  Flow inner(const std::string& name, int64_t elements) { return writer_.inner(prefix_ + name, elements); }
  Flow heads(const std::string& name, int64_t count, int64_t width) {
    return writer_.heads(prefix_ + name, count, width);
  }

 private:
  ChunkWriter& writer_;
  const ModelConfig& config_;
  std::string prefix_;
  std::vector<ScopeTag> scopes_;
};

}  // namespace

namespace {

/// The last product and the residual, behind the scores.
void add_output(ChunkWriter& writer, BlockParts& block, const Heads& heads, const Flow& attended, const Flow& x,
                const Flow& out) {
  const Flow sum = block.part_of_sum(".out.out");
  ChunkDraft last = block.products(".out", attended, sum);
  last.weight_reads.push_back(sum.gradients[0]);
  WorkTally projection = block.tally(Divided::Width);
  projection.linear("out", {fixed(writer.config().hidden)}, {tp(writer.config().heads), fixed(heads.value_width)});
  writer.add(std::move(last), projection);
  block.residual(x, sum, out, "out");
}

/// The scores step by step.
void add_ring(ChunkWriter& writer, BlockParts& block, const Heads& heads, const Flow& normed, WorkTally projections,
              const Flow& x, const Flow& out) {
  RingAttention ring(writer, {block.prefix(), block.scopes(), heads});
  ChunkDraft first = block.products(".qkv", normed, ring.queries());
  first.writes.push_back(ring.keys().value);
  first.input_reads.insert(first.input_reads.end(), ring.keys().gradients.begin(), ring.keys().gradients.end());
  writer.add(std::move(first), projections);
  ring.add_chunks();
  add_output(writer, block, heads, ring.attended(), x, out);
}

}  // namespace

void add_sharded_attention(ChunkWriter& writer, int64_t index, const Flow& x, const Flow& out) {
  const ModelConfig& c = writer.config();
  BlockParts block(writer, index, "attention");
  const Flow normed = block.norm(x);

  WorkTally projections = block.tally(Divided::Width);
  Heads heads = plain_projections(projections, c);
  if (writer.ring() > 0) return add_ring(writer, block, heads, normed, std::move(projections), x, out);
  std::vector<Flow> stored;
  if (writer.divides_context()) {
    const int64_t pair = heads.query_width + heads.value_width, keys = key_value_heads(c), copies = writer.key_copies();
    if (copies > 1) projections.pointwise(keys * pair, copies * keys * pair);
    heads.stored += (copies - 1) * keys * pair;
    stored = {block.heads(".q.out", c.heads, heads.query_width), block.heads(".kv.out", copies * keys, pair)};
  } else {
    stored = {block.inner(".qkv.out", heads.stored)};
  }
  ChunkDraft first = block.products(".qkv", normed, stored[0]);
  if (writer.divides_context()) {
    first.writes.push_back(stored[1].value);
    first.input_reads.push_back(stored[1].gradients[0]);
  }
  writer.add(std::move(first), projections);

  const Flow attended = block.heads(".core.out", c.heads, heads.value_width);
  ChunkDraft core = block.draft(".core");
  core.scopes.push_back({"core", 0});
  core.writes = {attended.value};
  core.input_reads = {attended.gradients[0]};
  for (const Flow& flow : stored) {
    core.reads.push_back(flow.value);
    core.input_reads.push_back(flow.value);
    core.input_writes.push_back(flow.gradients[0]);
  }
  if (writer.divides_context()) {
    core.all_tokens = {stored[1].value, stored[1].gradients[0]};
    core.causal = c.flash_attention;  // scores that are stored are computed for all pairs
  }
  if (c.flash_attention) core.input_reads.push_back(attended.value);
  WorkTally scores = block.tally(Divided::Width);
  attend(scores, c, heads, writer.sequence());
  writer.add(std::move(core), scores);
  add_output(writer, block, heads, attended, x, out);
}

void add_sharded_mlp(ChunkWriter& writer, int64_t index, const Flow& x, const Flow& out) {
  const ModelConfig& c = writer.config();
  BlockParts block(writer, index, "mlp");
  const Flow normed = block.norm(x), sum = block.part_of_sum(".down.out");
  ChunkDraft products = block.products("", normed, sum);
  products.weight_reads.push_back(sum.gradients[0]);
  WorkTally tally = block.tally(Divided::Width);
  feed_forward(tally, c, "", dense_width(c));
  writer.add(std::move(products), tally);
  block.residual(x, sum, out, "down");
}

}  // namespace piper
