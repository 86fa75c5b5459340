#include "train/fixed_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "model/analytic/config_fields.h"
#include "model/size.h"

namespace piper {
namespace {

std::string quoted(std::string_view word) {
  return fmt::format("\"{}\"", word);
}

std::string print(const std::optional<DType>& dtype) {
  return quoted(dtype ? name(*dtype) : "none");
}

/// The default sequence counts in [step], so here it is only the number of learned positions.
bool says_something(const IntegerField& field, Architecture arch) {
  return applies(field.applies_to, arch) && (field.key != "seq" || has_learned_positions(arch));
}

void add_model(ModelConfig config, std::vector<FixedSetting>& to) {
  const auto add = [&](std::string_view key, std::string value) {
    to.push_back({"model", std::string(key), std::move(value), {"name"}});
  };
  config.kv_heads = key_value_heads(config);
  config.head_dim = head_width(config);
  add("arch", quoted(name(config.arch)));
  for (const IntegerField& field : integer_fields())
    if (says_something(field, config.arch)) add(field.key, fmt::format("{}", config.*field.member));
  for (const NumberField& field : number_fields())
    if (applies(field.applies_to, config.arch)) add(field.key, fmt::format("{}", config.*field.member));
  for (const SwitchField& field : switch_fields())
    if (applies(field.applies_to, config.arch)) add(field.key, config.*field.member ? "true" : "false");
  add("act", quoted(config.act == Activation::Swiglu ? "swiglu" : "gelu"));
  add("norm", quoted(config.norm == Norm::RmsNorm ? "rmsnorm" : "layernorm"));
}

void add_step(const StepConfig& step, std::vector<FixedSetting>& to) {
  const std::vector<std::string> precision = {"precision"};
  to.push_back({"step", "weights", print(step.weights), precision});
  to.push_back({"step", "gradients", print(step.gradients), precision});
  to.push_back({"step", "master", print(step.master), precision});
  to.push_back({"step", "master_gradients", print(step.master_gradients), precision});
  to.push_back({"step", "optimizer", quoted(name(step.optimizer))});
  to.push_back({"step", "moments", print(step.moments)});
  to.push_back({"step", "ema", step.ema ? "true" : "false"});
}

std::string_view name(DataKind kind) {
  switch (kind) {
    case DataKind::Synthetic:
      return "synthetic";
    case DataKind::Reference:
      return "reference";
    case DataKind::Text:
      return "text";
    case DataKind::Tokens:
      return "tokens";
  }
  return {};
}

std::string_view name(DocumentPacking packing) {
  switch (packing) {
    case DocumentPacking::Carry:
      return "carry";
    case DocumentPacking::Truncate:
      return "truncate";
    case DocumentPacking::None:
      return "none";
  }
  return {};
}

std::string print_window(int64_t window) {
  if (window == std::numeric_limits<int64_t>::max()) return quoted("all");
  return window == 1 ? quoted("none") : fmt::format("{}", window);
}

/// Sources take turns by their shares.
std::string print_shares(const std::vector<SourceConfig>& sources) {
  double sum = 0;
  for (const SourceConfig& source : sources) sum += source.weight;
  std::vector<double> shares;
  for (const SourceConfig& source : sources) shares.push_back(source.weight / sum);
  return fmt::format("{}", shares);
}

/// What sample of the global order is which part of the data.
void add_data(const DataConfig& data, int64_t sequence, std::vector<FixedSetting>& to) {
  to.push_back({"data", "kind", quoted(name(data.kind))});
  if (data.kind != DataKind::Text && data.kind != DataKind::Tokens) return;  // a longer sample is the same, longer
  to.push_back({"data", "packing", quoted(name(data.packing))});
  // the samples of documents, one each, are the same ones with another length
  if (data.packing != DocumentPacking::None) to.push_back({"step", "sequence", fmt::format("{}", sequence)});
  to.push_back({"data", "shuffle", print_window(data.shuffle_window)});
  to.push_back({"data", "validation", fmt::format("{}", data.validation)});
  if (data.kind == DataKind::Tokens)
    to.push_back({"data", "dtype", quoted(data.width == TokenWidth::Bits16 ? "uint16" : "uint32")});
  to.push_back({"data", "sources", print_shares(data.sources), {"paths"}});
}

}  // namespace

std::vector<FixedSetting> fixed_settings(const ConfigFile& model, const TrainConfig& train) {
  std::vector<FixedSetting> out;
  const StepConfig step = resolve(model.step, model.model);
  add_model(model.model, out);
  add_step(step, out);
  add_data(train.data, step.sequence, out);
  return out;
}

bool is_fixed(std::string_view section, std::string_view key) {
  static const std::set<std::string_view> free_in_model = {"name", "init", "seq"};
  static const std::set<std::string_view> in_step = {"precision",        "weights",   "gradients", "master",
                                                     "master_gradients", "optimizer", "moments",   "ema"};
  static const std::set<std::string_view> in_data = {"kind", "packing", "shuffle", "validation", "dtype"};
  if (section == "model") return !free_in_model.contains(key);
  if (section == "step") return in_step.contains(key);
  return section == "data" && in_data.contains(key);
}

}  // namespace piper
