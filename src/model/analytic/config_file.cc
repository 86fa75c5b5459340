#include "model/analytic/config_file.h"

#include <fmt/format.h>

#include "base/suggest.h"
#include "base/text/toml_section.h"
#include "model/analytic/builtin_models.h"
#include "model/analytic/check_config.h"
#include "model/analytic/config_fields.h"

namespace piper {
namespace {

const std::vector<std::string> step_keys = {"batch",     "sequence", "precision",        "weights",
                                            "gradients", "master",   "master_gradients", "optimizer",
                                            "moments",   "ema",      "accumulate"};

/// The key that a message is about, or if it is not in the file another one whose value the message shows.
std::string shown_key(const TomlSection& section, const ConfigProblem& problem) {
  if (section.has(problem.key)) return problem.key;
  for (const TomlValue& member : section.table().items)
    if (problem.message.find(fmt::format("{} = ", member.key)) != std::string::npos) return member.key;
  return problem.key;
}

// ---- [model]

Checked read_integers(const TomlSection& section, ModelConfig& config) {
  for (const IntegerField& field : integer_fields()) {
    PIPER_TRY(const auto value, section.integer(field.key));
    if (!value) continue;
    if (*value < field.least || *value > field.most)
      return section
          .bad(field.key, fmt::format("{} = {} must be between {} and {}", field.key, *value, field.least, field.most))
          .help(fmt::format("for example {} = {}", field.key, *value < field.least ? field.least : field.most));
    config.*field.member = *value;
  }
  return Ok{};
}

Checked read_numbers(const TomlSection& section, ModelConfig& config) {
  for (const NumberField& field : number_fields()) {
    PIPER_TRY(const auto value, section.number(field.key));
    if (value) config.*field.member = *value;
  }
  return Ok{};
}

Checked read_switches(const TomlSection& section, ModelConfig& config) {
  for (const SwitchField& field : switch_fields()) {
    PIPER_TRY(const auto value, section.flag(field.key));
    if (value) config.*field.member = *value;
  }
  return Ok{};
}

template <class T>
Checked read_word(const TomlSection& section, std::string_view key, const std::vector<std::pair<std::string, T>>& words,
                  T& into) {
  PIPER_TRY(const auto word, section.choice(key, words));
  if (word) into = *word;
  return Ok{};
}

/// Where the configuration starts from: the architecture named by `arch`, else the built-in model named by `name`.
Result<ModelConfig> starting_point(const TomlSection& section) {
  PIPER_TRY(const auto arch, section.text("arch"));
  PIPER_TRY(const auto name, section.text("name"));
  if (!arch && !name)
    return section.bad("arch", "[model] needs arch, or the name of a built-in model")
        .help("for example arch = \"llama3\", or name = \"Qwen3-8B\"");
  if (!arch) return builtin_model(*name, section.place("name"));
  const auto found = architecture_named(*arch);
  if (!found)
    return error(ErrorCode::E112, section.place("arch"), fmt::format("unknown architecture \"{}\"", *arch))
        .help(did_you_mean(*arch, architecture_names()));
  ModelConfig config = usual_config(*found);
  config.name = name.value_or("");
  return config;
}

/// The diagnostic at the place of the key it is about.
Diagnostic at_key(const TomlSection& section, ConfigProblem problem) {
  const std::string key = shown_key(section, problem);
  return section.bad(key, std::move(problem.message)).help(std::move(problem.help));
}

Result<ModelConfig> read_model(const TomlSection& section) {
  PIPER_CHECK(section.only(model_keys()));
  PIPER_TRY(ModelConfig config, starting_point(section));
  PIPER_CHECK(read_integers(section, config));
  PIPER_CHECK(read_numbers(section, config));
  PIPER_CHECK(read_switches(section, config));
  PIPER_CHECK(
      read_word<Activation>(section, "act", {{"swiglu", Activation::Swiglu}, {"gelu", Activation::Gelu}}, config.act));
  PIPER_CHECK(
      read_word<Norm>(section, "norm", {{"rmsnorm", Norm::RmsNorm}, {"layernorm", Norm::LayerNorm}}, config.norm));
  PIPER_CHECK(read_word<RouterScores>(section, "scoring_func",
                                      {{"softmax", RouterScores::Softmax}, {"sigmoid", RouterScores::Sigmoid}},
                                      config.scoring_func));
  PIPER_CHECK(read_word<BalanceLoss>(section, "router_aux_loss",
                                     {{"per_layer", BalanceLoss::PerLayer}, {"joint", BalanceLoss::Joint}},
                                     config.router_aux_loss));
  if (config.dropless && section.has("capacity_factor"))
    return section.bad("capacity_factor", "experts without slots (dropless = true) have no capacity")
        .help("leave out one of the two");
  complete(config);
  if (auto problem = find_problem(config)) {
    Diagnostic diagnostic = at_key(section, std::move(*problem));
    if (section.has("arch") && section.has("name") && builtin_model(config.name))
      return std::move(diagnostic).help(fmt::format("leave out arch to start from the built-in {}", config.name));
    return diagnostic;
  }
  return config;
}

// ---- [step]

Result<std::optional<DType>> read_dtype(const TomlSection& section, std::string_view key) {
  PIPER_TRY(const auto text, section.text(key));
  if (!text) return std::optional<DType>();
  if (const auto found = dtype_named(*text)) return found;
  return section.bad(key, fmt::format("unknown dtype \"{}\"", *text)).help(did_you_mean(*text, dtype_names()));
}

/// A dtype, or "none" for no copy at all.
Checked read_copy(const TomlSection& section, std::string_view key, std::optional<std::optional<DType>>& into) {
  if (const auto text = section.text(key); text && *text && **text == "none") {
    into = std::optional<DType>();
    return Ok{};
  }
  PIPER_TRY(const auto dtype, read_dtype(section, key));
  if (dtype) into = dtype;
  return Ok{};
}

/// A name for three dtypes.
Checked read_precision(const TomlSection& section, StepOverrides& step) {
  PIPER_TRY(const auto recipe, section.choice<PrecisionRecipe>("precision", {{"mixed", PrecisionRecipe::Mixed},
                                                                             {"bfloat16", PrecisionRecipe::BFloat16},
                                                                             {"fp32", PrecisionRecipe::Float32}}));
  if (!recipe) return Ok{};
  for (const char* key : {"weights", "gradients", "master"})
    if (section.has(key))
      return section
          .bad(key,
               fmt::format("precision = \"{}\" says already what {} is", section.table().find("precision")->text, key))
          .help(fmt::format("leave out {}, or leave out precision and say all three", key));
  step = merge(step, step_of(*recipe));
  return Ok{};
}

Result<StepOverrides> read_step(const TomlSection& section) {
  StepOverrides step;
  PIPER_CHECK(section.only(step_keys));
  PIPER_CHECK(read_precision(section, step));
  PIPER_TRY(step.batch, section.integer("batch"));
  PIPER_TRY(step.sequence, section.integer("sequence"));
  PIPER_TRY(const auto weights, read_dtype(section, "weights"));
  PIPER_TRY(const auto gradients, read_dtype(section, "gradients"));
  if (weights) step.weights = weights;
  if (gradients) step.gradients = gradients;
  PIPER_CHECK(read_copy(section, "master", step.master));
  PIPER_CHECK(read_copy(section, "master_gradients", step.master_gradients));
  PIPER_TRY(step.optimizer, section.choice<Optimizer>("optimizer", {{"sgd", Optimizer::Sgd},
                                                                    {"momentum", Optimizer::Momentum},
                                                                    {"adamw", Optimizer::AdamW},
                                                                    {"lion", Optimizer::Lion},
                                                                    {"muon", Optimizer::Muon},
                                                                    {"adafactor", Optimizer::Adafactor}}));
  PIPER_TRY(step.moments, read_dtype(section, "moments"));
  PIPER_TRY(step.ema, section.flag("ema"));
  return step;
}

}  // namespace

Result<ConfigFile> parse_config(const SourceFilePtr& file, const std::vector<std::string>& other_sections) {
  PIPER_TRY(const TomlValue root, parse_toml(file));
  const TomlSection whole("the file", root);
  std::vector<std::string> sections = {"model", "step"};
  sections.insert(sections.end(), other_sections.begin(), other_sections.end());
  PIPER_CHECK(whole.only(sections));
  PIPER_TRY(const auto model, whole.section("model"));
  PIPER_TRY(const auto step, whole.section("step"));
  if (!model)
    return error(ErrorCode::E111, {file, 0, 1}, "the configuration has no [model]")
        .help("for example [model] with name = \"Qwen3-8B\"");
  ConfigFile config;
  config.model_table = model->place();
  PIPER_TRY(config.model, read_model(*model));
  if (step) {
    PIPER_TRY(config.step, read_step(*step));
  }
  if (auto problem = find_problem(config.model, resolve(config.step, config.model)))
    return at_key(step ? *step : *model, std::move(*problem));
  return config;
}

}  // namespace piper
