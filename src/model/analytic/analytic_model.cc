#include "model/analytic/analytic_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/saturate.h"
#include "model/analytic/attention_chunk.h"
#include "model/analytic/border_chunks.h"
#include "model/analytic/check_config.h"
#include "model/analytic/mixture_chunks.h"
#include "model/analytic/mlp_chunk.h"
#include "model/analytic/sharded_chunks.h"
#include "model/analytic/vocabulary_chunks.h"
#include "model/verify_model.h"

namespace piper {
namespace {

Diagnostic too_large(std::string what) {
  return error(ErrorCode::E111, {}, std::move(what)).help("reduce the model, the batch or the sequence");
}

Checked check_amounts(const Chunk& chunk) {
  for (const auto& work : chunk.work) {
    if (!work) continue;
    for (const Amount& amount : {work->flops, work->bytes_moved, work->temporaries})
      if (std::max(amount.fixed, amount.per_sample) > largest_amount)
        return too_large(fmt::format("{} needs more than 10^15 operations or bytes per sample", chunk.name));
  }
  return Ok{};
}

template <class Item>
Checked check_size(const Item& item, int64_t samples, int64_t element_bytes) {
  const bool wide = std::any_of(item.shape.begin(), item.shape.end(),
                                [](const Dim& dim) { return std::max(dim.size, dim.divisor) > largest_amount; });
  if (wide || saturating_multiply(elements(item.shape, samples), element_bytes) > largest_value_bytes)
    return too_large(fmt::format("{} is larger than 64 PiB", item.name));
  return Ok{};
}

Checked check_sizes(const ModelGraph& model) {
  constexpr int64_t widest_element = 8;
  for (const Value& value : model.values) PIPER_CHECK(check_size(value, model.step.batch, bytes_of(value.dtype)));
  for (const Parameter& parameter : model.parameters) PIPER_CHECK(check_size(parameter, 0, widest_element));
  for (const Chunk& chunk : model.chunks) PIPER_CHECK(check_amounts(chunk));
  return Ok{};
}

/// Latent attention is sharded in no published system: it stays whole.
bool shards_attention(const ChunkWriter& writer) {
  return writer.is_sharded() && !has_latent_attention(writer.config().arch);
}

/// The chunks of a block that read its input.
enum class Block { Attention, Mlp, Mixture, Head };
std::vector<std::string> readers(const ChunkWriter& writer, Block block) {
  if (block == Block::Mixture) return {"dispatch", "combine"};
  const bool sharded =
      block == Block::Attention ? shards_attention(writer) : block == Block::Mlp && writer.is_sharded();
  return sharded ? std::vector<std::string>{"norm", "residual"} : std::vector<std::string>{""};
}

/// Adds layer `index` behind `x`; returns its output.
Flow add_layer(ChunkWriter& writer, int64_t index, const Flow& x) {
  const bool mixture = is_mixture_layer(writer.config(), index);
  const std::string prefix = fmt::format("layer.{}.", index);
  const bool sharded = writer.is_sharded();
  const Flow middle =
      writer.activation(prefix + "attention.out", readers(writer, mixture ? Block::Mixture : Block::Mlp));
  if (shards_attention(writer))
    add_sharded_attention(writer, index, x, middle);
  else
    add_attention(writer, index, x, middle);
  const bool last = index + 1 == writer.config().layers;
  const Flow out = writer.activation(prefix + (mixture ? "combine.out" : "mlp.out"),
                                     readers(writer, last ? Block::Head : Block::Attention));
  if (mixture)
    add_mixture(writer, index, middle, out);
  else if (sharded)
    add_sharded_mlp(writer, index, middle, out);
  else
    add_mlp(writer, index, middle, out);
  return out;
}

ModelGraph build(const ModelConfig& config, const StepConfig& step, LayerForm form, TokenForm tokens_form) {
  ChunkWriter writer(config, step, form, tokens_form);
  const ValueId tokens = writer.input("tokens"), labels = writer.input("labels"), loss = writer.loss("loss");
  Flow x = writer.activation("embed.out", readers(writer, config.layers > 0 ? Block::Attention : Block::Head));
  (writer.shards_vocabulary() ? add_sharded_embed : add_embed)(writer, tokens, x);
  for (int64_t index = 0; index < config.layers; ++index) x = add_layer(writer, index, x);
  (writer.shards_vocabulary() ? add_sharded_head : add_head)(writer, x, labels, loss);
  ModelGraph model = std::move(writer).finish();
  model.context = tokens_form.divided;
  model.ring = tokens_form.ring;
  for (Chunk& chunk : model.chunks)  // which labels do not show
    chunk.experts = config.dropless && !chunk.scopes.empty() && chunk.scopes.back().scope == "experts";
  return model;
}

}  // namespace

Result<ModelGraph> analytic_model(const ModelConfig& config, const StepConfig& step, LayerForm form, TokenForm tokens) {
  if (config.arch == Architecture::TwoBranch)
    return error(ErrorCode::E111, {}, "architecture two-branch has no analytic form")
        .help("it can be captured and trained (docs/models.md)");
  auto problem = find_problem(config);
  if (!problem) problem = find_problem(config, step);
  if (problem) return error(ErrorCode::E111, {}, std::move(problem->message)).help(std::move(problem->help));
  if (tokens.divided && has_latent_attention(config.arch))
    return error(ErrorCode::E317, {},
                 fmt::format("shard: {} has latent attention, whose keys and values never leave its chunk, so that "
                             "devices with some of the tokens cannot have those of others",
                             config.name.empty() ? name(config.arch) : config.name))
        .help("context parallelism is for attention with keys and values of its own");
  if (tokens.ring > 0 && !config.flash_attention)
    return error(ErrorCode::E317, {},
                 fmt::format("shard: attention of {} stores its scores, and the steps of a ring do not",
                             config.name.empty() ? name(config.arch) : config.name))
        .help("set flash_attention = true")
        .help("or let attention gather keys and values: sequence=gather");
  ModelGraph model = build(config, step, form, tokens);
  PIPER_CHECK(check_sizes(model));
  PIPER_CHECK(verify(model));
  return model;
}

}  // namespace piper
