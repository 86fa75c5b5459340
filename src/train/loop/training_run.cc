#include "train/loop/training_run.h"

#include <fmt/format.h>
#include <torch/version.h>

#include "runtime/optimizer/optimizer.h"
#include "train/loop/profile.h"
#include "train/loop/take_memory.h"

namespace piper {
namespace {

/// The communicators of the devices that are here.
std::vector<std::unique_ptr<Communicator>> join_devices(const TrainingRunOptions& options, int devices,
                                                        JobOptions& job) {
  if (options.world) return join_job(*options.world, devices, *options.processor, job);
  LocalOptions local;
  local.timeout = until_the_job_fails;
  local.seconds = options.seconds;
  return options.processor->make_world(devices, std::move(local));
}

}  // namespace

Identity identity_of(const World& world, const Processor& processor, const std::string& gpus_joined_by, uint64_t seed) {
  return {{"piper", PIPER_VERSION},
          {"libtorch", TORCH_VERSION},
          {"what carries messages", world.library()},
          {"what computes", processor.place().is_cpu() ? "cpu" : "cuda, joined by " + gpus_joined_by},
          {"the seed", fmt::format("{}", seed)}};
}

Checked check_run(const Plan& plan, const StepConfig& step, const TrainingRunOptions& options) {
  PIPER_CHECK(check_types(element_types(step, step.weights)));
  if (options.world) PIPER_CHECK(check_processes(*options.world, device_count(plan), *options.processor));
  const std::vector<MemoryClaim> claims = options.saves
                                              ? claims_with_checkpoints(plan, step, options.world, *options.processor)
                                              : std::vector{memory_claim(plan, options.world, *options.processor)};
  return options.world ? check_memory_together(*options.world, claims, options.job.timeout) : check_memory(claims);
}

TrainingRun::TrainingRun(PreparedTraining prepared, const StepConfig& step,
                         std::function<void(const std::string& name, at::Tensor& whole)> initial,
                         TrainingRunOptions options)
    : prepared_(std::move(prepared)),
      options_(std::move(options)),
      computations_(*prepared_.captured, std::move(initial), options_.processor->place()) {
  if (options_.timed) timed_ = std::make_unique<TimedComputations>(computations_);
  Computations& computations = timed_ ? static_cast<Computations&>(*timed_) : computations_;
  JobOptions job = options_.job;
  job.run.processor = options_.processor;
  auto communicators = join_devices(options_, device_count(plan()), job);
  job_ = std::make_unique<Job>(prepared_.plan, step, computations, std::move(communicators), std::move(job));
}

TrainingRun::~TrainingRun() = default;

void TrainingRun::begin() {
  if (options_.world) job_->watched([&] { together_.emplace(*options_.world, *job_); });
}

StepSettings TrainingRun::settings(int64_t step, int64_t updates) const {
  StepSettings settings;
  settings.step = step;
  settings.seed = options_.seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(step);
  settings.updates = updates;
  settings.clip = options_.clip;
  settings.clip_value = options_.clip_value;
  settings.not_finite = options_.not_finite;
  return settings;
}

StepOutcome TrainingRun::step(StepSettings settings) {
  settings.fill = prepared_.captured->with_batch_counts(std::move(settings.fill));
  StepOutcome outcome = job_->step(settings);
  ++steps_;
  updates_ += outcome.skipped ? 0 : 1;
  return outcome;
}

void TrainingRun::set_progress(int64_t steps, int64_t updates) {
  steps_ = steps;
  updates_ = updates;
}

int TrainingRun::greatest(int here) {
  if (together_) job_->watched([&] { here = together_->greatest(here); });
  return here;
}

void TrainingRun::sum(std::span<std::byte> elements, DataType dtype) {
  if (together_) job_->watched([&] { together_->sum(elements, dtype); });
}

std::vector<DeviceFlight> TrainingRun::flights() {
  std::vector<DeviceFlight> out = flights_of(job_->devices());
  if (together_) job_->watched([&] { out = together_->gather(out); });
  return out;
}

}  // namespace piper
