#include "train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/text/toml_section.h"
#include "cost/load_cluster.h"
#include "model/analytic/config_file.h"
#include "runtime/optimizer/limits.h"

namespace piper {
namespace {

constexpr int64_t most_steps = 1'000'000'000'000;
constexpr int64_t most_tokens = 1'000'000'000'000'000'000;
constexpr int64_t most_accumulated = 1'000'000;
constexpr int64_t most_devices = 1 << 24;
constexpr double usual_min_lr_ratio = 0.1;  // where there is a [lr_schedule]

constexpr int64_t most_samples = most_steps;
constexpr NumberLimit share = {[](double x) { return x >= 0 && x <= 1; }, "a share from 0 to 1"};

Checked read(const TomlSection& section, std::string_view key, const NumberLimit& limit, double& into) {
  PIPER_TRY(const auto number, section.number(key));
  if (number && !limit.has(*number))
    return section.bad(key, fmt::format("{} = {} must be {}", key, *number, limit.words))
        .help(fmt::format("without the key it is {}", into));
  into = number.value_or(into);
  return Ok{};
}

Result<std::optional<int64_t>> read_count(const TomlSection& section, std::string_view key, int64_t least,
                                          int64_t most) {
  PIPER_TRY(const auto count, section.integer(key));
  if (count && (*count < least || *count > most))
    return section.bad(key, fmt::format("{} = {} must be between {} and {}", key, *count, least, most))
        .help(fmt::format("for example {} = {}", key, *count < least ? least : most));
  return count;
}

/// Names are relative to the folder of the configuration.
NamedFile named_file(const TomlValue& value) {
  const std::filesystem::path folder = std::filesystem::path(value.place.file->name).parent_path();
  return {(folder / value.text).lexically_normal().string(), value.place};
}

Checked read_file_name(const TomlSection& section, std::string_view key, std::optional<NamedFile>& into) {
  PIPER_TRY(const auto text, section.text(key));
  if (text && text->empty())
    return section.bad(key, fmt::format("{} is empty", key)).help("name a file, or leave the key out");
  if (text) into = named_file(*section.table().find(key));
  return Ok{};
}

// ---- [optimizer]

/// A key that the chosen optimizer does not look at would be ignored.
Checked check_key(const TomlSection& section, std::string_view key, const std::vector<Optimizer>& means,
                  Optimizer chosen, const SourceRange& choice) {
  if (!section.has(key) || std::find(means.begin(), means.end(), chosen) != means.end()) return Ok{};
  Diagnostic problem = section.bad(key, fmt::format("{} means nothing for optimizer = \"{}\"", key, name(chosen)));
  if (choice) problem.notes.push_back({choice, "chosen here"});
  return std::move(problem).help(fmt::format("leave it out, or write optimizer = \"{}\" in [step]", name(means[0])));
}

Checked read_betas(const TomlSection& section, OptimizerSettings& settings) {
  PIPER_TRY(const auto betas, section.numbers("betas"));
  if (!betas) return Ok{};
  if (betas->size() != 2 || !std::all_of(betas->begin(), betas->end(), beta_limit.has))
    return section.bad("betas", fmt::format("betas must be two numbers, each {}", beta_limit.words))
        .help("for example betas = [0.9, 0.95]");
  settings.beta1 = (*betas)[0];
  settings.beta2 = (*betas)[1];
  return Ok{};
}

Checked read_groups(const TomlSection& section, TrainConfig& config) {
  PIPER_TRY(const auto groups, section.sections("groups"));
  for (const TomlSection& group : groups) {
    PIPER_CHECK(group.only({"pattern", "lr_factor", "weight_decay", "frozen"}));
    PIPER_TRY(const auto pattern, group.text("pattern"));
    if (!pattern || pattern->empty())
      return group.bad("pattern", "a group needs a pattern").help("for example pattern = \"*.norm*\"");
    ParameterGroup out{*pattern, 1, {}};
    PIPER_CHECK(read(group, "lr_factor", rate_limit, out.rate));
    if (group.has("weight_decay")) {
      out.weight_decay = config.optimizer.weight_decay;
      PIPER_CHECK(read(group, "weight_decay", weight_decay_limit, *out.weight_decay));
    }
    PIPER_TRY(const auto frozen, group.flag("frozen"));
    for (const char* key : {"lr_factor", "weight_decay"})
      if (frozen.value_or(false) && group.has(key))
        return group.bad(key, fmt::format("{} means nothing for parameters that are not trained", key))
            .help("leave it out, or leave out frozen");
    if (frozen.value_or(false)) config.frozen_groups.insert(config.groups.size());
    config.groups.push_back(std::move(out));
    config.group_places.push_back(group.place("pattern"));
  }
  return Ok{};
}

Checked read_clip(const TomlSection& section, std::string_view key, std::string_view what,
                  std::optional<double>& into) {
  PIPER_TRY(into, section.number(key));
  if (!into || clip_limit.has(*into)) return Ok{};
  return section.bad(key, fmt::format("{} = {} must be {}", key, *into, clip_limit.words))
      .help(fmt::format("it is the largest {}; leave it out for none", what));
}

Checked read_optimizer(const TomlSection& section, const SourceRange& choice, TrainConfig& config) {
  OptimizerSettings& settings = config.optimizer;
  PIPER_CHECK(section.only({"learning_rate", "betas", "eps", "weight_decay", "weight_decay_on", "momentum", "nesterov",
                            "ns_steps", "adjust_lr", "adamw_lr_factor", "beta2_decay", "min_rms", "clip_threshold",
                            "ema_decay", "clip", "clip_value", "groups"}));
  constexpr Optimizer muon = Optimizer::Muon;
  PIPER_CHECK(check_key(section, "betas", {Optimizer::AdamW, Optimizer::Lion, muon}, settings.kind, choice));
  PIPER_CHECK(check_key(section, "eps", {Optimizer::AdamW, muon, Optimizer::Adafactor}, settings.kind, choice));
  PIPER_CHECK(check_key(section, "momentum", {Optimizer::Momentum, muon}, settings.kind, choice));
  PIPER_CHECK(check_key(section, "nesterov", {Optimizer::Momentum, muon}, settings.kind, choice));
  for (const char* key : {"ns_steps", "adjust_lr", "adamw_lr_factor"})
    PIPER_CHECK(check_key(section, key, {muon}, settings.kind, choice));
  for (const char* key : {"beta2_decay", "min_rms", "clip_threshold"})
    PIPER_CHECK(check_key(section, key, {Optimizer::Adafactor}, settings.kind, choice));
  PIPER_CHECK(read(section, "learning_rate", positive, settings.learning_rate));  // the peak of those of all steps
  PIPER_CHECK(read_betas(section, settings));
  PIPER_CHECK(read(section, "eps", epsilon_limit, settings.epsilon));
  AdafactorSettings& adafactor = settings.adafactor;
  if (section.has("eps")) adafactor.epsilon = settings.epsilon;
  PIPER_CHECK(read(section, "beta2_decay", beta2_decay_limit, adafactor.beta2_decay));
  PIPER_CHECK(read(section, "min_rms", least_rms_limit, adafactor.least_rms));
  PIPER_CHECK(read(section, "clip_threshold", clip_threshold_limit, adafactor.clip_threshold));
  PIPER_CHECK(read(section, "weight_decay", weight_decay_limit, settings.weight_decay));
  PIPER_TRY(const auto decays, section.choice<bool>("weight_decay_on", {{"all", false}, {"matrices", true}}));
  config.decay_matrices_only = decays.value_or(config.decay_matrices_only);
  PIPER_CHECK(read(section, "momentum", momentum_limit, settings.momentum));
  PIPER_TRY(const auto nesterov, section.flag("nesterov"));
  settings.nesterov = nesterov.value_or(settings.nesterov);
  PIPER_TRY(const auto iterations, read_count(section, "ns_steps", 1, most_newton_schulz_steps));
  settings.newton_schulz_steps = iterations.value_or(settings.newton_schulz_steps);
  PIPER_TRY(const auto adjust, section.choice<MuonRate>("adjust_lr", {{"original", MuonRate::Ratio},
                                                                      {"match_rms_adamw", MuonRate::MatchRms}}));
  settings.muon_rate = adjust.value_or(settings.muon_rate);
  PIPER_CHECK(read(section, "adamw_lr_factor", rate_limit, settings.adamw_rate));
  PIPER_CHECK(read(section, "ema_decay", ema_decay_limit, settings.ema_decay));
  PIPER_CHECK(read_clip(section, "clip", "norm of all gradients together", config.clip));
  PIPER_CHECK(read_clip(section, "clip_value", "absolute value of a gradient", config.clip_value));
  return read_groups(section, config);
}

/// The optimizer is part of [step], because memory depends on it; a wrong word there is parse_config's to refuse.
Optimizer chosen_optimizer(const std::optional<TomlSection>& step) {
  if (!step) return Optimizer::AdamW;
  const auto text = step->text("optimizer");
  return text && *text ? optimizer_named(**text).value_or(Optimizer::AdamW) : Optimizer::AdamW;
}

// ---- [lr_schedule]

/// Where it is known after how much of its unit the lowest rate is reached.
Checked check_rate(const TomlSection& section, int64_t until_lowest, LrSchedule& rate) {
  const std::string_view unit = rate.unit == LrUnit::Tokens ? "tokens" : "steps";
  if (rate.warmup > until_lowest)
    return section
        .bad("warmup",
             fmt::format("warmup = {} {}, but the lowest rate is reached after {}", rate.warmup, unit, until_lowest))
        .help(rate.total > 0 ? fmt::format("raise total, or warm up for fewer {}", unit)
                             : "without total it is reached at the end of the run");
  if (rate.decay == 0) rate.decay = std::max<int64_t>(1, (until_lowest - rate.warmup) / 5);
  if (rate.shape == LrShape::Wsd && rate.warmup + rate.decay > until_lowest && until_lowest > rate.warmup)
    return section
        .bad("decay", fmt::format("decay = {} {}, but only {} are left after the warmup", rate.decay, unit,
                                  until_lowest - rate.warmup))
        .help(fmt::format("decay for fewer {}, or raise total", unit));
  return Ok{};
}

Checked read_rate(const TomlSection& section, int64_t steps, LrSchedule& rate) {
  PIPER_CHECK(section.only({"shape", "unit", "warmup", "total", "decay", "min_lr_ratio"}));
  PIPER_TRY(const auto shape, section.choice<LrShape>("shape", {{"constant", LrShape::Constant},
                                                                {"linear", LrShape::Linear},
                                                                {"cosine", LrShape::Cosine},
                                                                {"inverse_root", LrShape::InverseRoot},
                                                                {"wsd", LrShape::Wsd}}));
  PIPER_TRY(const auto unit, section.choice<LrUnit>("unit", {{"steps", LrUnit::Steps}, {"tokens", LrUnit::Tokens}}));
  rate.unit = unit.value_or(LrUnit::Steps);
  const int64_t most = rate.unit == LrUnit::Tokens ? most_tokens : most_steps;
  PIPER_TRY(const auto warmup, read_count(section, "warmup", 0, most));
  PIPER_TRY(const auto total, read_count(section, "total", 1, most));
  PIPER_TRY(const auto decay, read_count(section, "decay", 1, most));
  rate.shape = shape.value_or(LrShape::Cosine);
  rate.warmup = warmup.value_or(rate.warmup);
  rate.total = total.value_or(rate.total);
  rate.decay = decay.value_or(rate.decay);
  rate.min_lr_ratio = usual_min_lr_ratio;
  PIPER_CHECK(read(section, "min_lr_ratio", share, rate.min_lr_ratio));
  if (decay && rate.shape != LrShape::Wsd)
    return section.bad("decay", "decay means nothing unless shape = \"wsd\"").help("leave it out");
  if (total || rate.unit == LrUnit::Steps) return check_rate(section, total.value_or(steps), rate);
  return Ok{};
}

// ---- [step]

/// What updates are made of. The rest of the section is about the step itself: parse_config reads it.
Checked read_accumulate(const TomlSection& section, int64_t steps, int64_t& accumulate) {
  PIPER_TRY(const auto count, read_count(section, "accumulate", 1, most_accumulated));
  accumulate = count.value_or(accumulate);
  if (steps % accumulate == 0) return Ok{};
  return section.bad("accumulate", fmt::format("accumulate = {}, but the run has {} steps", accumulate, steps))
      .help("steps in [run] counts every step: make it a multiple");
}

// ---- [data]

Checked read_paths(const TomlSection& section, std::vector<NamedFile>& into) {
  PIPER_TRY(const auto paths, section.texts("paths"));
  for (const TomlValue* path : paths) into.push_back(named_file(*path));
  return Ok{};
}

Checked read_source(const TomlSection& section, SourceConfig& source) {
  PIPER_CHECK(read_paths(section, source.paths));
  if (source.paths.empty())
    return section.bad("paths", "[data] does not say which files")
        .help("for example paths = [\"docs/**/*.md\", \"more.txt\"], relative to this file");
  PIPER_TRY(source.epochs, section.number("epochs"));
  if (source.epochs && !positive.has(*source.epochs))
    return section.bad("epochs", fmt::format("epochs = {} must be {}", *source.epochs, positive.words))
        .help("it is how often a run may see the same samples; leave it out for no limit");
  source.where = section.place(section.has("epochs") ? "epochs" : "paths");
  return Ok{};
}

/// `paths`, or a mixture: `[[data.sources]]`.
Checked read_sources(const TomlSection& section, DataConfig& data) {
  PIPER_TRY(const auto sources, section.sections("sources"));
  if (sources.empty()) return read_source(section, data.sources.emplace_back());
  for (const char* key : {"paths", "epochs"})
    if (section.has(key))
      return section.bad(key, fmt::format("{} means nothing beside sources", key))
          .help("every source has its own: write it below [[data.sources]]");
  for (const TomlSection& source : sources) {
    PIPER_CHECK(source.only({"paths", "weight", "epochs"}));
    PIPER_CHECK(read_source(source, data.sources.emplace_back()));
    PIPER_CHECK(read(source, "weight", positive, data.sources.back().weight));
  }
  return Ok{};
}

/// A word, or how many neighbours.
Checked read_shuffle(const TomlSection& section, int64_t& window) {
  const TomlValue* value = section.table().find("shuffle");
  if (!value) return Ok{};
  if (value->kind == TomlValue::Kind::Integer) {
    PIPER_TRY(const auto count, read_count(section, "shuffle", 1, most_samples));
    window = *count;
    return Ok{};
  }
  PIPER_TRY(const auto word, section.choice<int64_t>("shuffle", {{"all", window}, {"none", 1}}));
  window = *word;
  return Ok{};
}

/// How samples are made of documents, and which of them are seen.
Checked read_samples(const TomlSection& section, DataConfig& data) {
  PIPER_TRY(const auto packing, section.choice<DocumentPacking>("packing", {{"carry", DocumentPacking::Carry},
                                                                            {"truncate", DocumentPacking::Truncate},
                                                                            {"none", DocumentPacking::None}}));
  PIPER_TRY(data.loss, section.choice<LossOn>("loss", {{"all", LossOn::All}, {"completions", LossOn::Completions}}));
  data.packing = packing.value_or(data.packing);
  PIPER_TRY(const auto attention,
            section.choice<AttentionWithin>(
                "attention", {{"sample", AttentionWithin::Sample}, {"document", AttentionWithin::Document}}));
  data.attention = attention.value_or(data.attention);
  PIPER_CHECK(read_shuffle(section, data.shuffle_window));
  return read(section, "validation", below_one, data.validation);
}

Checked read_data(const TomlSection& section, DataConfig& data) {
  PIPER_CHECK(section.only(
      {"kind", "paths", "sources", "epochs", "dtype", "packing", "attention", "loss", "shuffle", "validation"}));
  PIPER_TRY(const auto kind, section.choice<DataKind>("kind", {{"synthetic", DataKind::Synthetic},
                                                               {"reference", DataKind::Reference},
                                                               {"text", DataKind::Text},
                                                               {"tokens", DataKind::Tokens}}));
  PIPER_TRY(const auto width,
            section.choice<TokenWidth>("dtype", {{"uint16", TokenWidth::Bits16}, {"uint32", TokenWidth::Bits32}}));
  if (!kind)
    return section.bad("kind", "[data] needs kind").help("it is \"synthetic\", \"reference\", \"text\" or \"tokens\"");
  data.kind = *kind;
  data.width = width.value_or(data.width);
  if (width && *kind != DataKind::Tokens)
    return section.bad("dtype", "dtype means nothing unless kind = \"tokens\"").help("leave it out");
  if (*kind == DataKind::Text || *kind == DataKind::Tokens) {
    PIPER_CHECK(read_sources(section, data));
    return read_samples(section, data);
  }
  for (const char* key : {"paths", "sources", "epochs", "packing", "attention", "loss", "shuffle", "validation"})
    if (section.has(key))
      return section.bad(key, fmt::format("{} means nothing for data that is not read from files", key))
          .help("leave it out, or write kind = \"text\"");
  return Ok{};
}

// ---- [evaluation]

Checked read_prompts(const TomlSection& section, DataKind kind, std::optional<PromptConfig>& into) {
  PIPER_TRY(const auto texts, section.texts("prompts"));
  for (const char* key : {"max_new_tokens", "temperature", "tokenizer"})
    if (texts.empty() && section.has(key))
      return section.bad(key, fmt::format("{} means nothing without prompts", key))
          .help("for example prompts = [\"Once upon a time\"]");
  if (texts.empty()) return Ok{};
  PromptConfig out;
  for (const TomlValue* text : texts) {
    if (text->text.empty())
      return section.bad("prompts", "a prompt is empty").help("text that the model goes on with has at least a token");
    out.texts.push_back(text->text);
    out.places.push_back(text->place);
  }
  PIPER_TRY(const auto tokens, read_count(section, "max_new_tokens", 1, INT32_MAX));
  out.max_new_tokens = tokens.value_or(out.max_new_tokens);
  PIPER_CHECK(read(section, "temperature", not_negative, out.temperature));
  PIPER_CHECK(read_file_name(section, "tokenizer", out.tokenizer));
  if (kind != DataKind::Text && kind != DataKind::Tokens)
    return section.bad("prompts", "prompts need a model of text, and the data of the run is not text")
        .help("they are for kind = \"text\" and kind = \"tokens\"");
  if (kind == DataKind::Text && out.tokenizer)
    return section.bad("tokenizer", "tokenizer means nothing for kind = \"text\", whose tokens are bytes")
        .help("leave it out");
  if (kind == DataKind::Tokens && !out.tokenizer)
    return section.bad("prompts", "prompts need the tokenizer that the data was made with")
        .help("tokenizer = \"FOLDER\", as for piper data prepare");
  into = std::move(out);
  return Ok{};
}

/// Without data of its own: that of the run, after the samples of its steps.
Checked read_evaluation(const TomlSection& section, const DataConfig& of_run, std::optional<EvaluationConfig>& into) {
  PIPER_CHECK(section.only({"every", "batches", "data", "prompts", "max_new_tokens", "temperature", "tokenizer"}));
  PIPER_TRY(const auto every, read_count(section, "every", 1, most_steps));
  PIPER_TRY(const auto batches, read_count(section, "batches", 1, most_steps));
  PIPER_TRY(const auto data, section.section("data"));
  EvaluationConfig out;
  out.every = every.value_or(out.every);
  out.batches = batches.value_or(out.batches);
  out.data = of_run;
  out.own_data = data.has_value();
  PIPER_CHECK(read_prompts(section, of_run.kind, out.prompts));
  if (data) {
    out.data = {};
    out.data.seed = of_run.seed;
    PIPER_CHECK(read_data(*data, out.data));
  }
  into = out;
  return Ok{};
}

// ---- [run]

/// A number of steps, or a time as text.
Checked read_interval(const TomlSection& section, CheckpointInterval& into) {
  const TomlValue* value = section.table().find("checkpoint_every");
  if (!value) return Ok{};
  const bool steps = value->kind == TomlValue::Kind::Integer;
  const auto interval = parse_interval(steps ? fmt::format("{}", value->integer) : value->text);
  if (!interval)
    return section.bad("checkpoint_every", "checkpoint_every must be a number of steps, or a time")
        .help("for example checkpoint_every = 500, or checkpoint_every = \"10min\"");
  into = *interval;
  return Ok{};
}

Checked read_checkpoints(const TomlSection& section, CheckpointConfig& checkpoints) {
  PIPER_CHECK(read_file_name(section, "checkpoints", checkpoints.folder));
  PIPER_CHECK(read_interval(section, checkpoints.every));
  PIPER_TRY(const auto keep, read_count(section, "keep", 1, most_steps));
  PIPER_TRY(const auto keep_every, read_count(section, "keep_every", 1, most_steps));
  PIPER_TRY(checkpoints.shard_size, section.bytes("shard_size"));
  checkpoints.keep = keep.value_or(checkpoints.keep);
  checkpoints.keep_every = keep_every.value_or(checkpoints.keep_every);
  for (const char* key : {"checkpoint_every", "keep", "keep_every", "shard_size"})
    if (section.has(key) && !checkpoints.folder)
      return section.bad(key, fmt::format("{} means nothing without checkpoints", key))
          .help("for example checkpoints = \"checkpoints\", a folder");
  if (section.has("keep_every") && !section.has("keep"))
    return section.bad("keep_every", "keep_every means nothing without keep: all checkpoints stay")
        .help("for example keep = 3");
  return Ok{};
}

Checked read_run(const TomlSection& section, RunConfig& run) {
  PIPER_CHECK(section.only({"steps", "seed", "schedule", "devices", "emulate", "trace", "metrics", "tensorboard",
                            "on_nan", "on", "deterministic", "loss_block", "saved_activations", "checkpoints",
                            "checkpoint_every", "keep", "keep_every", "shard_size"}));
  PIPER_CHECK(read_checkpoints(section, run.checkpoints));
  PIPER_TRY(const auto steps, read_count(section, "steps", 1, most_steps));
  PIPER_TRY(const auto seed, read_count(section, "seed", 0, INT64_MAX));
  PIPER_TRY(run.devices, read_count(section, "devices", 1, most_devices));
  run.steps = steps.value_or(run.steps);
  run.seed = static_cast<uint64_t>(seed.value_or(0));
  PIPER_CHECK(read_file_name(section, "schedule", run.schedule));
  PIPER_CHECK(read_file_name(section, "emulate", run.emulate));
  PIPER_CHECK(read_file_name(section, "trace", run.trace));
  PIPER_CHECK(read_file_name(section, "metrics", run.metrics));
  PIPER_CHECK(read_file_name(section, "tensorboard", run.tensorboard));
  for (const ShippedCluster& shipped : shipped_clusters())  // no files
    if (run.emulate && section.table().find("emulate")->text == shipped.name) run.emulate->path = shipped.name;
  PIPER_TRY(const auto on_nan, section.choice<OnNan>("on_nan", {{"stop", OnNan::Stop}, {"skip", OnNan::Skip}}));
  run.on_nan = on_nan.value_or(run.on_nan);
  PIPER_TRY(const auto on, section.choice<RunOn>("on", {{"cpu", RunOn::Cpu}, {"cuda", RunOn::Cuda}}));
  run.on = on.value_or(run.on);
  PIPER_TRY(const auto deterministic, section.flag("deterministic"));
  run.deterministic = deterministic.value_or(false);
  PIPER_TRY(run.loss_block, read_count(section, "loss_block", 0, INT32_MAX));
  PIPER_TRY(run.fewest_saved, section.choice<bool>("saved_activations", {{"fewest", true}, {"recorded", false}}));
  return Ok{};
}

}  // namespace

Result<TrainConfig> parse_train_config(const SourceFilePtr& file) {
  PIPER_TRY(const TomlValue root, parse_toml(file));
  const TomlSection whole("the file", root);
  std::vector<std::string> sections = {"model", "step"};
  sections.insert(sections.end(), training_sections.begin(), training_sections.end());
  PIPER_CHECK(whole.only(sections));
  PIPER_TRY(const auto step, whole.section("step"));
  PIPER_TRY(const auto optimizer, whole.section("optimizer"));
  PIPER_TRY(const auto rate, whole.section("lr_schedule"));
  PIPER_TRY(const auto data, whole.section("data"));
  PIPER_TRY(const auto evaluation, whole.section("evaluation"));
  PIPER_TRY(const auto run, whole.section("run"));

  PIPER_TRY(const auto model, whole.section("model"));
  TrainConfig config;
  if (model) PIPER_CHECK(read_file_name(*model, "init", config.init));
  config.optimizer.kind = chosen_optimizer(step);
  if (config.optimizer.kind == Optimizer::Sgd || config.optimizer.kind == Optimizer::Momentum)
    config.optimizer.weight_decay = 0;  // as torch.optim.SGD
  if (config.optimizer.kind == Optimizer::Lion) config.optimizer.beta2 = 0.99;
  if (config.optimizer.kind == Optimizer::Muon) {  // as torch.optim.Muon
    config.optimizer.momentum = 0.95;
    config.optimizer.nesterov = true;
  }
  if (config.optimizer.kind == Optimizer::Adafactor) {  // as torch.optim.Adafactor
    config.optimizer.learning_rate = 1e-2;
    config.optimizer.weight_decay = 0;
  }
  const SourceRange choice = step && step->has("optimizer") ? step->place("optimizer") : SourceRange();
  if (optimizer) PIPER_CHECK(read_optimizer(*optimizer, choice, config));
  if (optimizer && optimizer->has("ema_decay")) {
    const auto kept = step ? step->flag("ema") : Result<std::optional<bool>>(std::optional<bool>());
    if (kept && !kept->value_or(false))
      return optimizer->bad("ema_decay", "ema_decay means nothing where no exponential moving average is kept")
          .help("leave it out, or write ema = true in [step]");
  }
  if (run) PIPER_CHECK(read_run(*run, config.run));
  if (rate) PIPER_CHECK(read_rate(*rate, config.run.steps, config.rate));
  if (step) PIPER_CHECK(read_accumulate(*step, config.run.steps, config.accumulate));
  if (data) PIPER_CHECK(read_data(*data, config.data));
  config.data.seed = config.run.seed;
  if (evaluation) PIPER_CHECK(read_evaluation(*evaluation, config.data, config.evaluation));
  return config;
}

}  // namespace piper
