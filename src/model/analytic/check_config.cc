#include "model/analytic/check_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/analytic/config_fields.h"
#include "model/element_types.h"

namespace piper {
namespace {

using Problem = std::optional<ConfigProblem>;

Problem problem(std::string_view key, std::string message, std::string help = "") {
  return ConfigProblem{std::string(key), std::move(message), std::move(help)};
}

Problem meaningless(std::string_view key, Architecture arch) {
  return problem(key, fmt::format("{} means nothing for architecture {}", key, name(arch)),
                 "leave it out, or choose another arch");
}

Problem outside(std::string_view key, const auto& value, const auto& least, const auto& most) {
  return problem(key, fmt::format("{} = {} must be between {} and {}", key, value, least, most),
                 fmt::format("for example {} = {}", key, value < least ? least : most));
}

Problem check_integer(const ModelConfig& config, const IntegerField& field) {
  const int64_t value = config.*field.member;
  const bool applicable = applies(field.applies_to, config.arch);
  if (value == 0 && applicable && field.need == Need::Required)
    return problem(field.key, fmt::format("{} is missing; architecture {} needs it", field.key, name(config.arch)),
                   fmt::format("add {} = …, or start from a built-in model: name = \"…\"", field.key));
  if (value == 0) return std::nullopt;
  if (!applicable) return meaningless(field.key, config.arch);
  if (value < field.least || value > field.most) return outside(field.key, value, field.least, field.most);
  return std::nullopt;
}

Problem check_fields(const ModelConfig& config) {
  const ModelConfig usual = usual_config(config.arch);
  for (const IntegerField& field : integer_fields())
    if (Problem found = check_integer(config, field)) return found;
  for (const NumberField& field : number_fields()) {
    const double value = config.*field.member;
    if (!(value >= field.least && value <= field.most)) return outside(field.key, value, field.least, field.most);
    if (value != usual.*field.member && !applies(field.applies_to, config.arch))
      return meaningless(field.key, config.arch);
  }
  for (const SwitchField& field : switch_fields())
    if (config.*field.member != usual.*field.member && !applies(field.applies_to, config.arch))
      return meaningless(field.key, config.arch);
  if (!applies(AppliesTo::AdjustableMixture, config.arch)) {
    if (config.scoring_func != usual.scoring_func) return meaningless("scoring_func", config.arch);
    if (config.router_aux_loss != usual.router_aux_loss) return meaningless("router_aux_loss", config.arch);
  }
  return std::nullopt;
}

Problem check_attention(const ModelConfig& c) {
  if (has_latent_attention(c.arch)) return std::nullopt;
  if (c.heads % key_value_heads(c) != 0)
    return problem("kv_heads", fmt::format("heads = {} is not a multiple of kv_heads = {}", c.heads, c.kv_heads),
                   "every key and value head serves equally many heads; change one of the two");
  if (c.head_dim == 0 && c.hidden % c.heads != 0)
    return problem("heads", fmt::format("hidden = {} is not a multiple of heads = {}", c.hidden, c.heads),
                   "give head_dim if the heads are not hidden / heads wide");
  return std::nullopt;
}

Problem check_mixture(const ModelConfig& c) {
  if (!has_experts(c.arch)) return std::nullopt;
  if (c.top_k > c.experts)
    return problem("top_k", fmt::format("top_k = {} is more than experts = {}", c.top_k, c.experts),
                   "a token cannot go to more experts than there are; change one of the two");
  if (c.dense_layers > c.layers)
    return problem("dense_layers", fmt::format("dense_layers = {} is more than layers = {}", c.dense_layers, c.layers),
                   "the dense layers are the first of all layers; change one of the two");
  if (c.dense_layers > 0 && c.dense_ffn == 0)
    return problem("dense_ffn", fmt::format("dense_ffn is missing; dense_layers = {} needs it", c.dense_layers),
                   "add dense_ffn = …: the inner width of the dense layers");
  if ((c.n_group == 0) != (c.topk_group == 0))
    return problem(c.n_group == 0 ? "topk_group" : "n_group", "n_group and topk_group are given together or not at all",
                   "add the other, or take this one out");
  if (c.n_group > 0 && c.experts % c.n_group != 0)
    return problem("n_group", fmt::format("experts = {} is not a multiple of n_group = {}", c.experts, c.n_group),
                   "groups of experts are equally large; change one of the two");
  if (c.topk_group > c.n_group)
    return problem("topk_group", fmt::format("topk_group = {} is more than n_group = {}", c.topk_group, c.n_group),
                   "a token cannot go to more groups than there are; change one of the two");
  if (c.n_group > 0 && c.top_k > c.experts / c.n_group * c.topk_group)
    return problem("topk_group",
                   fmt::format("top_k = {} is more than the {} experts of topk_group = {} groups", c.top_k,
                               c.experts / c.n_group * c.topk_group, c.topk_group),
                   "a token goes to experts of so many groups only; change one of the two");
  return std::nullopt;
}

bool is_float(DType dtype) {
  return dtype == DType::Float64 || dtype == DType::Float32 || dtype == DType::BFloat16 || dtype == DType::Float16;
}

Problem check_dtype(std::string_view key, std::optional<DType> dtype) {
  if (!dtype || is_float(*dtype)) return std::nullopt;
  return problem(key, fmt::format("{} = \"{}\" must be a floating-point dtype", key, name(*dtype)),
                 "one of float64, float32, bfloat16, float16");
}

}  // namespace

Problem find_problem(const ModelConfig& config) {
  const bool unprintable = std::any_of(config.name.begin(), config.name.end(),
                                       [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (unprintable || config.name.size() > 200)
    return problem("name", "the model's name must be printable and have at most 200 characters",
                   "give it a shorter, plain name");
  if (Problem found = check_fields(config)) return found;
  if (has_learned_positions(config.arch) && config.seq == 0)
    return problem("seq",
                   fmt::format("seq is missing; architecture {} needs it for its learned positions", name(config.arch)),
                   "add seq = 2048, or another number");
  if (is_reference(config.arch) && config.act != Activation::Swiglu) return meaningless("act", config.arch);
  if (is_reference(config.arch) && config.norm != Norm::RmsNorm) return meaningless("norm", config.arch);
  if (Problem found = check_attention(config)) return found;
  return check_mixture(config);
}

Problem find_problem(const ModelConfig& config, const StepConfig& step) {
  if (step.batch < 1 || step.batch > 1'000'000'000) return outside("batch", step.batch, 1, 1'000'000'000);
  if (step.sequence < 1 || step.sequence > (1 << 24)) return outside("sequence", step.sequence, 1, 1 << 24);
  if (has_learned_positions(config.arch) && step.sequence > config.seq)
    return problem("sequence",
                   fmt::format("sequence = {} is longer than the {} positions (seq) the model has learned",
                               step.sequence, config.seq),
                   fmt::format("write sequence = {}, or a larger seq in [model]", config.seq));
  if (Problem found = check_dtype("weights", step.weights)) return found;
  if (Problem found = check_dtype("gradients", step.gradients)) return found;
  if (Problem found = check_dtype("master", step.master)) return found;
  if (Problem found = check_dtype("master_gradients", step.master_gradients)) return found;
  const Checked moments = check_moments(step);
  if (moments) return std::nullopt;
  return problem("moments", moments.error().message, moments.error().helps[0]);
}

}  // namespace piper
