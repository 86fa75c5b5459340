#include "train/loop/training.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/text_table.h"
#include "base/time_text.h"
#include "plan/memory_report.h"
#include "schedule/schedule_text.h"
#include "sim/device_use.h"
#include "train/loop/emulated_network.h"
#include "train/loop/measured.h"
#include "train/loop/plant_fault.h"
#include "train/loop/predictions.h"
#include "train/loop/profile.h"
#include "train/loop/take_memory.h"

namespace piper {
namespace {

constexpr std::string_view one_device = "devices(1)\nplace({}, devices=[0])\n";

Processor& processor_of(const TrainingOptions& options) {
  return options.processor ? *options.processor : host_processor();
}

/// Tokens below the vocabulary, as the inputs of the model want them.
BatchShape shape_of(const TrainableModel& model) {
  return {model.step.batch, model.step.sequence, model.vocabulary};
}

}  // namespace

Result<std::unique_ptr<Training>> Training::make(const SourceFilePtr& config, const TrainConfig& train,
                                                 const std::optional<Schedule>& schedule,
                                                 const TrainingOptions& options) {
  const Nanoseconds start = now();
  at::set_num_threads(options.threads);  // before capture: temporaries of some operators depend on it
  PIPER_TRY(TrainableModel model, build_model(config, train.run.seed, BuildOn::Meta, processor_of(options).place()));
  Schedule chosen;
  if (schedule) {
    chosen = *schedule;
  } else {
    PIPER_TRY(chosen, parse_schedule(make_source("one device", std::string(one_device))));
  }
  CompileOptions compiling;
  if (options.emulate) compiling.cluster = *options.emulate;
  if (options.cluster) compiling.cluster = *options.cluster;
  compiling.costs = options.costs;
  const auto claim = [&](const Plan& plan) { return memory_claim(plan, options.world, processor_of(options)); };
  const Fits fits = [&](const Plan& plan) { return check_memory({claim(plan)}); };
  PIPER_TRY(PreparedTraining prepared,
            options.world
                ? prepare_together(*options.world, model, chosen, compiling, options.identity, options.job.timeout,
                                   options.fault && options.fault->kind == PlantedFault::Kind::Plan, fits)
                : prepare_training(model, chosen, compiling, {true, fits}));
  const Nanoseconds planned = now();
  PIPER_CHECK(check_types(element_types(model.step, model.step.weights)));
  PIPER_CHECK(check_device_count(train, *prepared.plan));
  if (options.world) {
    PIPER_CHECK(check_processes(*options.world, device_count(*prepared.plan), processor_of(options)));
    PIPER_CHECK(check_memory_together(*options.world, claim(*prepared.plan), options.job.timeout));
  }
  if (options.emulate) PIPER_CHECK(check_devices(*options.emulate, device_count(*prepared.plan), {}));
  PIPER_TRY(std::unique_ptr<TokenSource> tokens, open_tokens(train.data, shape_of(model)));
  std::unique_ptr<Training> out(new Training(std::move(model), std::move(prepared), train, std::move(tokens), options));
  out->start_up_ = {static_cast<double>(planned - start) * 1e-9, static_cast<double>(now() - planned) * 1e-9};
  return out;
}

Training::Training(TrainableModel model, PreparedTraining prepared, TrainConfig train,
                   std::unique_ptr<TokenSource> tokens, const TrainingOptions& options)
    : model_(std::move(model)),
      prepared_(std::move(prepared)),
      train_(std::move(train)),
      cluster_(options.cluster.value_or(options.emulate.value_or(Cluster{}))),
      tokens_(std::move(tokens)),
      processor_(processor_of(options)),
      computations_(*prepared_.captured, model_.initialize, processor_.place()) {
  LocalOptions local;
  local.timeout = until_the_job_fails;
  if (options.emulate)
    local.seconds = [seconds = communication_seconds(plan(), *options.emulate)](int64_t number) {
      return seconds[static_cast<size_t>(number) % seconds.size()];
    };
  if (options.timed) timed_ = std::make_unique<TimedComputations>(computations_);
  Computations& computations = timed_ ? static_cast<Computations&>(*timed_) : computations_;
  JobOptions job = options.job;
  job.run.processor = &processor_;
  if (options.fault) job.run.before_op = plant(*options.fault, plan());
  job.predictions = predictions(plan(), options.costs, options.emulate ? options.emulate : options.cluster);
  std::vector<std::unique_ptr<Communicator>> communicators =
      options.world ? join_job(*options.world, device_count(plan()), processor_, job)
                    : processor_.make_world(device_count(plan()), std::move(local));
  job_ = std::make_unique<Job>(prepared_.plan, model_.step, computations, std::move(communicators), std::move(job));
  job_->set_parameters(model_.initialize);
}

Training::~Training() = default;

void Training::fill(std::string_view input, int64_t step, int64_t first_sample, at::Tensor& into) const {
  const int64_t length = into.numel() / into.size(0);
  std::vector<int64_t> row(static_cast<size_t>(model_.step.sequence + 1));
  const int64_t shift = input == "targets" ? 1 : 0;
  for (int64_t s = 0; s < into.size(0); ++s) {
    if (auto sampled = tokens_->sample(step, first_sample + s, row); !sampled)
      throw std::runtime_error(render(sampled.error()));
    std::copy_n(row.data() + shift, length, into.mutable_data_ptr<int64_t>() + s * length);
  }
}

StepSettings Training::settings(int64_t step, int64_t updates) const {
  StepSettings settings;
  settings.step = step;
  settings.seed = train_.run.seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(step);
  settings.optimizer = train_.optimizer;
  settings.optimizer.kind = model_.step.optimizer;
  settings.optimizer.learning_rate = learning_rate(train_, step);
  settings.updates = updates;
  settings.clip = train_.clip;
  settings.not_finite = train_.run.on_nan == OnNan::Skip ? NotFinite::Skip : NotFinite::Stop;
  settings.fill = [this, step](std::string_view input, int64_t first_sample, at::Tensor& into) {
    fill(input, step, first_sample, into);
  };
  return settings;
}

StepMetrics Training::step() {
  const StepSettings settings = this->settings(next_, updates_);
  const StepOutcome outcome = job_->step(settings);
  StepMetrics metrics;
  metrics.step = next_++;
  updates_ += outcome.skipped ? 0 : 1;
  metrics.loss = outcome.loss;
  metrics.gradient_norm = outcome.gradient_norm;
  metrics.learning_rate = settings.optimizer.learning_rate;
  metrics.seconds = outcome.seconds;
  metrics.tokens = tokens_per_step();
  metrics.skipped = outcome.skipped;
  return metrics;
}

std::string libtorch_version() {
  return TORCH_VERSION;
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
    table.add(row);
  }
  return table.print();
}

}  // namespace piper
