#include "model/analytic/draft_parts.h"

#include "model/analytic/dims.h"

namespace piper {

Bias bias_of(const ModelConfig& config) {
  return config.bias ? Bias::Yes : Bias::No;
}
Bias norm_bias(const ModelConfig& config) {
  return config.norm == Norm::LayerNorm ? Bias::Yes : Bias::No;
}

ChunkDraft residual_draft(std::string name, const Flow& x, const Flow& out) {
  ChunkDraft draft;
  draft.name = std::move(name);
  draft.reads = {x.value};
  draft.writes = {out.value};
  draft.input_reads = out.gradients;
  draft.input_reads.push_back(x.value);
  draft.input_writes = {x.gradients.front()};
  draft.weight_reads = {x.value};
  return draft;
}

ChunkDraft draft_between(std::string name, std::vector<ScopeTag> scopes, const Flow& in, const Flow& out) {
  ChunkDraft draft;
  draft.name = std::move(name);
  draft.scopes = std::move(scopes);
  draft.reads = {in.value};
  draft.writes = {out.value};
  draft.input_reads = out.gradients;
  draft.input_writes = in.gradients;
  return draft;
}

void input_norm(WorkTally& tally, const ModelConfig& config) {
  tally.norm("norm", config.hidden, norm_bias(config));
  tally.keep(config.hidden, NeededBy::Weight);
  tally.hand(config.hidden);
  tally.inside(config.hidden);
}

void residual(WorkTally& tally, const ModelConfig& config, ChunkDraft& draft, const std::vector<ValueId>& gradients) {
  tally.pointwise(2 * config.hidden, config.hidden);
  tally.inside(config.hidden);
  if (config.dropout) {
    tally.keep_bytes(config.hidden, NeededBy::Input);  // mask
    tally.hand(config.hidden);
  } else {
    draft.weight_reads.insert(draft.weight_reads.end(), gradients.begin(), gradients.end());
  }
}

void feed_forward(WorkTally& tally, const ModelConfig& config, const std::string& prefix, int64_t width) {
  const int64_t ups = config.act == Activation::Swiglu ? 2 : 1;
  const bool divided = tally.unit().divided == Divided::Width;
  const auto rise = [&](const std::string& name) {
    if (divided)
      tally.linear(prefix + name, {tp(width)}, {fixed(config.hidden)}, bias_of(config));
    else
      tally.linear(prefix + name, config.hidden, width, bias_of(config));
  };
  if (ups == 2) rise("gate");
  rise("up");
  tally.keep(ups * width, NeededBy::Input);
  tally.hand(ups * width);
  tally.pointwise(ups * width, width);
  tally.inside(width);
  tally.keep(width, NeededBy::Weight);
  if (divided)  // a bias would be added by every device: it stands behind the sum
    tally.linear(prefix + "down", {fixed(config.hidden)}, {tp(width)});
  else
    tally.linear(prefix + "down", width, config.hidden, bias_of(config));
}

}  // namespace piper
