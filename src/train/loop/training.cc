#include "train/loop/training.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/invariant.h"
#include "base/text_table.h"
#include "base/time_text.h"
#include "plan/memory_report.h"
#include "schedule/schedule_text.h"
#include "sim/device_use.h"
#include "sim/simulate.h"
#include "sim/step_report.h"
#include "train/compare_config.h"
#include "train/loop/checkpoint/restore.h"
#include "train/loop/continue_texts.h"
#include "train/loop/emulated_network.h"
#include "train/loop/measured.h"
#include "train/loop/plant_fault.h"
#include "train/loop/predictions.h"
#include "train/loop/take_memory.h"

namespace piper {
namespace {

constexpr std::string_view one_device = "devices(1)\nplace({}, devices=[0])\n";

/// Tokens below the vocabulary, as the inputs of the model want them.
SampleShape shape_of(const TrainableModel& model) {
  return {model.step.sequence, model.vocabulary};
}

TrainingRunOptions run_options(const Plan& plan, const TrainConfig& train, const TrainingOptions& options) {
  TrainingRunOptions out;
  out.seed = train.run.seed;
  out.clip = train.clip;
  out.clip_value = train.clip_value;
  out.accumulate = train.accumulate;
  out.not_finite = train.run.on_nan == OnNan::Skip ? NotFinite::Skip : NotFinite::Stop;
  out.job = options.job;
  out.job.predictions = predictions(plan, options.costs, options.emulate ? options.emulate : options.cluster);
  if (options.fault) out.job.run.before_op = plant(*options.fault, plan);
  out.processor = options.processor;
  out.world = options.world;
  if (options.emulate)
    out.seconds = [seconds = communication_seconds(plan, *options.emulate)](int64_t number) {
      return seconds[CommunicationId(static_cast<size_t>(number) % seconds.size())];
    };
  out.timed = options.timed;
  out.hosts = options.hosts;
  out.saves = train.run.checkpoints.folder.has_value();
  return out;
}

/// Of a step on the cluster, or with the costs, that somebody has named.
std::optional<Prediction> predict(const Training& training, const TrainingOptions& options) {
  if (!options.cluster && !options.emulate && !options.costs) return {};
  const auto simulation = simulate(training.plan(), training.cluster(), options.costs ? &*options.costs : nullptr);
  if (!simulation) return {};
  const StepReport report = step_report(training.graph(), training.plan(), training.cluster(), *simulation);
  return Prediction{report.seconds, report.mfu * report.seconds};
}

}  // namespace

Result<PlannedTraining> prepare(const SourceFilePtr& config, const TrainConfig& train,
                                const std::optional<Schedule>& schedule, const TrainingOptions& options,
                                PlanFor plan_for) {
  at::set_num_threads(options.threads);  // before capture: temporaries of some operators depend on it
  PIPER_TRY(ConfigFile parsed, parse_config(config, training_sections));
  PIPER_TRY(TrainableModel model,
            model_of_run(std::move(parsed), train, {plan_for, options.processor->device(), options.kernels}));
  Schedule chosen;
  if (schedule) {
    chosen = *schedule;
  } else {
    PIPER_TRY(chosen, parse_schedule(make_source("one device", std::string(one_device))));
  }
  CompileOptions compiling;
  compiling.plan_for = plan_for;
  if (options.emulate) compiling.cluster = *options.emulate;
  if (options.cluster) compiling.cluster = *options.cluster;
  compiling.costs = options.costs;
  const Fits fits = [&](const Plan& plan) {
    return check_memory({memory_claim(plan, options.world, *options.processor)});
  };
  PIPER_TRY(PreparedTraining prepared,
            options.world
                ? prepare_together(*options.world, model, chosen, compiling, options.identity, options.job.timeout,
                                   options.fault && options.fault->kind == PlantedFault::Kind::Plan, fits)
                : prepare_training(model, chosen, compiling, {true, fits}));
  return PlannedTraining{std::move(model), std::move(prepared)};
}

Result<std::unique_ptr<Training>> Training::make(const SourceFilePtr& config, const TrainConfig& train,
                                                 const std::optional<Schedule>& schedule,
                                                 const TrainingOptions& options) {
  const Nanoseconds start = now();
  PIPER_TRY(PlannedTraining made, prepare(config, train, schedule, options));
  auto& [model, prepared] = made;
  std::optional<PreparedTraining> evaluated;
  if (train.evaluation) {
    PIPER_TRY(PlannedTraining planned, prepare(config, train, schedule, options, PlanFor::Evaluation));
    evaluated = std::move(planned.prepared);
  }
  const Nanoseconds planned = now();
  PIPER_CHECK(check_device_count(train, *prepared.plan));
  if (options.emulate) PIPER_CHECK(check_devices(*options.emulate, device_count(*prepared.plan), {}));
  TrainingRunOptions run = run_options(*prepared.plan, train, options);
  PIPER_CHECK(check_run(*prepared.plan, model.step, run));
  if (evaluated) PIPER_CHECK(check_run(*evaluated->plan, model.step, run));
  PIPER_TRY(std::unique_ptr<TokenSource> tokens, open_tokens(train.data, shape_of(model)));
  PIPER_CHECK(tokens->check_length(train.run.steps * model.step.batch));
  std::unique_ptr<TokenSource> evaluated_tokens;
  if (train.evaluation) {
    PIPER_TRY(evaluated_tokens, open_tokens(train.evaluation->data, shape_of(model)));
  }
  std::unique_ptr<Training> out(
      new Training(config, std::move(model), std::move(prepared), train, std::move(tokens), options, std::move(run)));
  out->evaluated_ = std::move(evaluated);
  out->evaluated_tokens_ = std::move(evaluated_tokens);
  PIPER_CHECK(out->read_prompts());
  out->prediction_ = predict(*out, options);
  out->start_up_ = {static_cast<double>(planned - start) * 1e-9, static_cast<double>(now() - planned) * 1e-9};
  return out;
}

Training::Training(SourceFilePtr config, TrainableModel model, PreparedTraining prepared, TrainConfig train,
                   std::unique_ptr<TokenSource> tokens, const TrainingOptions& options, TrainingRunOptions run)
    : config_(std::move(config)),
      model_(std::move(model)),
      train_(std::move(train)),
      groups_(groups_of(train_, model_)),
      cluster_(options.cluster.value_or(options.emulate.value_or(Cluster{}))),
      tokens_(std::move(tokens)),
      run_(std::move(prepared), model_.step, model_.initialize, std::move(run)) {
  job().set_parameters(model_.initialize);
}

Training::~Training() = default;

void Training::fill(const TokenSource& source, std::string_view input, int64_t first_sample, at::Tensor& into) const {
  const Nanoseconds start = now();
  const int64_t length = into.numel() / into.size(0);
  const auto sequence = static_cast<size_t>(model_.step.sequence);
  std::vector<int64_t> tokens(sequence), targets(sequence);
  const std::vector<int64_t>& wanted = input == "targets" ? targets : tokens;
  for (int64_t s = 0; s < into.size(0); ++s) {
    if (input == "places") {
      source.places(first_sample + s, {into.mutable_data_ptr<int64_t>() + s * length, sequence});
      continue;
    }
    if (auto sampled = source.sample(first_sample + s, tokens, targets); !sampled)
      throw std::runtime_error(render(sampled.error()));
    std::copy_n(wanted.data(), length, into.mutable_data_ptr<int64_t>() + s * length);
  }
  filling_ += now() - start;
}

StepSettings Training::settings(int64_t step, int64_t updates) const {
  StepSettings settings = run_.settings(step, updates);
  settings.optimizer = train_.optimizer;
  settings.optimizer.kind = model_.step.optimizer;
  settings.groups = groups_;
  settings.accumulation.reads_ahead = true;
  const int64_t before = run_.samples() + (step - run_.steps()) * model_.step.batch;
  settings.optimizer.learning_rate = learning_rate(train_, {step, before * model_.step.sequence, tokens_per_step()});
  settings.fill = [this, before](std::string_view input, int64_t first_sample, at::Tensor& into) {
    fill(*tokens_, input, before + first_sample, into);
  };
  return settings;
}

bool Training::evaluates_now() const {
  if (!train_.evaluation) return false;
  const int64_t steps = run_.steps(), every = train_.evaluation->every;
  return steps == train_.run.steps || (every > 0 && steps % every == 0);
}

EvaluationMetrics Training::evaluate() {
  if (!evaluation_) evaluation_ = std::make_unique<EvaluationRun>(run_, *evaluated_, model_.step);
  evaluation_->begin([&](const std::string& name, at::Tensor& whole) {
    const at::Tensor weight = run_.parameter(name, Kept::Weight);
    weight.defined() ? static_cast<void>(whole.copy_(weight)) : model_.initialize(name, whole);
  });
  const int64_t first = train_.evaluation->own_data ? 0 : train_.run.steps * model_.step.batch;
  evaluation_->add(train_.evaluation->batches, [&](std::string_view input, int64_t first_sample, at::Tensor& into) {
    if (input == "sample" || input == "last")  // of a text to go on with
      into.zero_();
    else
      fill(*evaluated_tokens_, input, first + first_sample, into);
  });
  const Evaluation found = evaluation_->end();
  EvaluationMetrics out;
  out.steps = run_.steps();
  out.loss = found.loss;
  out.perplexity = found.perplexity();
  out.batches = found.batches;
  out.tokens = found.batches * tokens_per_step();
  out.seconds = found.seconds;
  out.reported = reported_metrics(evaluation_->captured().slices()[0].operators.metrics, found.metrics);
  if (!prompts_.empty()) out.samples = write_texts();
  return out;
}

Checked Training::read_prompts() {
  if (!train_.evaluation || !train_.evaluation->prompts) return Ok{};
  const PromptConfig& config = *train_.evaluation->prompts;
  text_ = byte_tokens();
  if (config.tokenizer) {
    PIPER_TRY(text_, open_tokenizer(*config.tokenizer));
  }
  PIPER_TRY(prompts_, text_->encode(config.texts));
  for (size_t p = 0; p < prompts_.size(); ++p) {
    const auto length = static_cast<int64_t>(prompts_[p].size());
    if (length == 0 || length >= model_.step.sequence)
      return error(ErrorCode::E111, config.places[p],
                   fmt::format("the prompt has {} token{}, a sample {}", length, length == 1 ? "" : "s",
                               model_.step.sequence))
          .help("a prompt has at least one token, and fewer than the sequence");
    if (const auto greatest = std::ranges::max(prompts_[p]); greatest >= model_.vocabulary)
      return error(ErrorCode::E702, config.places[p],
                   fmt::format("the prompt has token {}, the model's vocabulary {}", greatest, model_.vocabulary))
          .help("the tokenizer is that of the data, and vocab in [model] at least as large");
  }
  return Ok{};
}

std::vector<WrittenText> Training::write_texts() {
  const PromptConfig& config = *train_.evaluation->prompts;
  const auto written = continue_texts(*evaluation_, prompts_,
                                      {model_.step.sequence, model_.vocabulary, config.max_new_tokens, text_->end()});
  if (run_.world() && run_.world()->rank() != 0) return {};
  const auto texts = text_->decode(written);
  if (!texts) throw RunError(RunProblem::Operation, render(texts.error()));
  std::vector<WrittenText> out;
  for (size_t p = 0; p < prompts_.size(); ++p) out.push_back({config.texts[p], (*texts)[p]});
  return out;
}

StepMetrics Training::step() {
  const StepSettings settings = this->settings(run_.steps(), run_.updates());
  filling_ = 0;
  const Result<StepOutcome> taken = run_.step(settings);
  invariant(bool(taken), "who reads ahead knows what all steps of an update count");
  const StepOutcome& outcome = *taken;
  StepMetrics metrics;
  metrics.step = settings.step;
  metrics.loss = outcome.loss;
  metrics.gradient_norm = outcome.gradient_norm;
  metrics.learning_rate = settings.optimizer.learning_rate;
  metrics.seconds = outcome.seconds;
  metrics.tokens = tokens_per_step();
  metrics.skipped = outcome.skipped;
  metrics.updates = outcome.updates;
  metrics.data_seconds = static_cast<double>(filling_) * 1e-9;
  metrics.peak_bytes = run_.peak_bytes();
  if (prediction_) {
    metrics.predicted_seconds = prediction_->seconds;
    if (outcome.seconds > 0) metrics.mfu = prediction_->at_peak / outcome.seconds;
  }
  metrics.reported = reported_metrics(run_.metric_names(), run_.metrics_of(outcome));
  if (const auto part = run_.further_rows()) metrics.reported.named.push_back({"further_rows", *part});
  last_ = metrics;
  return metrics;
}

RunState Training::state() const {
  RunState out;
  out.step = run_.steps();
  out.samples = run_.samples();
  out.updates = run_.updates();
  out.seed = train_.run.seed;
  out.learning_rate = last_.learning_rate;
  out.loss = last_.loss;
  out.plan = hash(run_.plan());
  out.configuration = config_->text;
  return out;
}

StatePosition Training::progress() const {
  return {run_.steps(), run_.progress().samples, run_.updates(), last_.learning_rate, last_.loss, hash(run_.plan())};
}

void Training::go_on_after(const StatePosition& progress) {
  run_.set_progress({progress.step, progress.samples, progress.updates});
  last_.learning_rate = progress.learning_rate;
  last_.loss = progress.loss;
}

SaveForm Training::save_form() const {
  SaveForm out;
  out.names = model_.saved;
  if (!model_.hugging_face.empty()) out.texts.emplace_back("config.json", model_.hugging_face);
  return out;
}

Result<std::vector<std::string>> Training::resume(const FolderReader& folder, const SavedModel& saved) {
  const RunState& state = folder.state();
  const std::string name = fmt::format("{}, configuration", folder.folder());
  PIPER_TRY(std::vector<std::string> changed, compare_config(config_, make_source(name, state.configuration)));
  PIPER_CHECK(restore(folder, saved, run_));
  last_.loss = state.loss;
  last_.learning_rate = state.learning_rate;
  return changed;
}

std::string device_table(const Plan& plan, const std::vector<DeviceFlight>& flights, int64_t step) {
  const Simulation measured = measured_step(plan, flights, step);
  const std::vector<TimeUse> uses = device_use(plan, measured);
  const bool gpu = std::any_of(flights.begin(), flights.end(), [](const DeviceFlight& f) { return f.issuing > 0; });
  const bool arenas =
      std::any_of(flights.begin(), flights.end(), [](const DeviceFlight& f) { return f.arena_bytes > 0; });
  std::vector<std::string> columns = {"device", "compute",        "exposed communication",
                                      "idle",   "memory planned", "measured"};
  if (gpu) columns.insert(columns.end(), {"host", "per operator"});
  if (arenas) columns.insert(columns.end(), {"arena", "of what is alive", "elsewhere"});
  const bool rows = std::ranges::any_of(flights, [](const DeviceFlight& f) { return f.exchanges > 0; });
  if (rows) columns.insert(columns.end(), {"rows for experts", "in further rounds", "longer exchanges"});
  TextTable table(columns);
  for (size_t d = 0; d < flights.size(); ++d) {
    const auto share = [&](double seconds) {
      return fmt::format("{} ({:.0f} %)", human_seconds(seconds), 100 * seconds / measured.seconds);
    };
    std::vector<std::string> row = {fmt::format("{}", flights[d].device),
                                    share(uses[d].compute),
                                    share(uses[d].exposed),
                                    share(uses[d].idle),
                                    human_bytes(memory_peak(plan, program_of(plan, flights[d].device)).total),
                                    human_bytes(flights[d].peak_bytes)};
    if (gpu) {
      const double issuing = static_cast<double>(flights[d].issuing) * 1e-9;
      row.push_back(share(issuing));
      row.push_back(human_seconds(issuing / static_cast<double>(std::max<int64_t>(flights[d].operators, 1))));
    }
    if (arenas) {
      row.push_back(human_bytes(flights[d].arena_bytes));
      row.push_back(fmt::format("{:.3f} x", static_cast<double>(flights[d].arena_bytes) /
                                                static_cast<double>(std::max<int64_t>(flights[d].alive_bytes, 1))));
      row.push_back(fmt::format("{}", flights[d].arena_misses));
    }
    if (rows) {
      const DeviceFlight& f = flights[d];
      const double all = static_cast<double>(std::max<int64_t>(f.rows, 1));
      row.push_back(fmt::format("{}", f.rows));
      row.push_back(fmt::format("{} ({:.1f} %)", f.further_rows, 100 * static_cast<double>(f.further_rows) / all));
      row.push_back(fmt::format("{} of {}", f.longer, f.exchanges));
    }
    table.add(row);
  }
  return table.print();
}

}  // namespace piper
