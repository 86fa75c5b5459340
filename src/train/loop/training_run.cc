#include "train/loop/training_run.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/whole_state.h"
#include "runtime/executor.h"
#include "runtime/optimizer/optimizer.h"
#include "train/loop/libtorch_version.h"
#include "train/loop/profile.h"
#include "train/loop/take_memory.h"

namespace piper {

Identity identity_of(const World& world, const Processor& processor, const std::string& gpus_joined_by, uint64_t seed) {
  return {{"piper", PIPER_VERSION},
          {"libtorch", libtorch_version},
          {"what carries messages", world.library()},
          {"what computes", processor.device().is_cpu() ? "cpu" : "cuda, joined by " + gpus_joined_by},
          {"the seed", fmt::format("{}", seed)}};
}

Checked check_run(const Plan& plan, const StepConfig& step, const TrainingRunOptions& options) {
  PIPER_CHECK(check_types(element_types(step, step.weights)));
  PIPER_CHECK(check_moments(step));
  if (options.world && std::ranges::any_of(template_of_device(plan), [](TemplateId t) { return !t.valid(); }))
    return error(ErrorCode::E805, {},
                 "the schedule has lost devices, and a job of several processes has all of its own")
        .help("train it in one process: without --backend and piper launch");
  if (options.world) PIPER_CHECK(check_processes(*options.world, device_count(plan), *options.processor));
  std::vector<MemoryClaim> claims = options.saves
                                        ? claims_with_checkpoints(plan, step, options.world, *options.processor)
                                        : std::vector{memory_claim(plan, options.world, *options.processor)};
  if (!options.hosts.empty()) claim_recent(claims, plan, *options.world, options.hosts, *options.processor);
  return options.world ? check_memory_together(*options.world, claims, options.job.timeout) : check_memory(claims);
}

TrainingRun::TrainingRun(PreparedTraining prepared, const StepConfig& step,
                         std::function<void(const std::string& name, at::Tensor& whole)> initial,
                         TrainingRunOptions options)
    : prepared_(std::move(prepared)),
      options_(std::move(options)),
      computations_(*prepared_.captured, std::move(initial), options_.processor->device()),
      counts_(*prepared_.captured) {
  if (options_.timed) timed_ = std::make_unique<TimedComputations>(computations_);
  Computations& computations = timed_ ? static_cast<Computations&>(*timed_) : computations_;
  JobOptions job = options_.job;
  job.run.processor = options_.processor;
  auto communicators = join_devices(device_count(plan()), JobTurns::training, job);
  job_ = std::make_unique<Job>(prepared_.plan, step, computations, std::move(communicators), std::move(job));
}

TrainingRun::~TrainingRun() = default;

std::vector<std::unique_ptr<Communicator>> TrainingRun::join_devices(int devices, int number, JobOptions& job) {
  if (options_.world) return join_job(*options_.world, devices, *options_.processor, turns_, number, job);
  LocalOptions local;
  local.timeout = until_the_job_fails;
  if (number == JobTurns::training) local.seconds = options_.seconds;  // by communications of the plan of a step
  return options_.processor->make_world(devices, std::move(local));
}

void TrainingRun::end_with(Job& job) {
  if (together_) together_->end_with(job);
}

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
  settings.accumulation = {options_.accumulate, step % options_.accumulate};
  return settings;
}

Result<StepOutcome> TrainingRun::step(StepSettings settings) {
  PIPER_TRY(settings, counts_.weigh(std::move(settings)));
  StepOutcome outcome;
  try {
    outcome = job_->step(settings);
  } catch (const RunError& problem) {  // the sums of gradients are lost: all steps of the update are taken again
    if (problem.problem == RunProblem::NotFinite) {
      progress_.steps -= settings.accumulation.index;
      progress_.samples -= settings.accumulation.index * job_->step_config().batch;
    }
    throw;
  }
  counts_.taken();
  ++progress_.steps;
  progress_.samples += job_->step_config().batch;
  progress_.updates += outcome.updates && !outcome.skipped ? 1 : 0;
  return outcome;
}

std::vector<double> TrainingRun::metrics_of(const StepOutcome& outcome) {
  std::vector<double> out(metric_names().size());
  if (out.empty()) return out;
  for (const SliceLoss& slice : outcome.losses)
    for (size_t m = 0; m < slice.metrics.size(); ++m) out[m] += slice.metrics[m] / static_cast<double>(plan().losses);
  sum(std::as_writable_bytes(std::span(out)), DataType::Float64);
  return out;
}

std::optional<double> TrainingRun::further_rows() {
  const auto routes = [](const Communication& communication) { return communication.buffer > 0; };
  if (std::ranges::none_of(plan().communications, routes)) return {};
  std::array<double, 2> now = {};
  for (DeviceRun* device : job_->devices()) {
    now[0] += static_cast<double>(device->frame().rows.rows);
    now[1] += static_cast<double>(device->frame().rows.further);
  }
  std::array<double, 2> since = {now[0] - rows_[0], now[1] - rows_[1]};
  rows_ = now;
  sum(std::as_writable_bytes(std::span(since)), DataType::Float64);
  return since[0] > 0 ? since[1] / since[0] : 0;
}

int TrainingRun::greatest(int here) {
  if (together_) job_->watched([&] { here = together_->greatest(here); });
  return here;
}

void TrainingRun::sum(std::span<std::byte> elements, DataType dtype) {
  if (together_) job_->watched([&] { together_->sum(elements, dtype); });
}

void TrainingRun::all_gather(std::span<const std::byte> part, std::span<std::byte> whole) {
  if (together_)
    job_->watched([&] { together_->all_gather(part, whole); });
  else
    std::ranges::copy(part, whole.begin());
}

std::vector<int64_t> TrainingRun::sizes_of(const std::string& name, Kept kept) const {
  const std::vector<int64_t> sizes = computations_.parameter(name).sizes;
  return kept == Kept::Whole ? std::vector{whole_state_count(job_->step_config().optimizer, sizes)} : sizes;
}

at::Tensor TrainingRun::parameter(const std::string& name, Kept kept) {
  const auto place = place_of(plan(), name);
  const auto dtype = place ? kept_dtype(plan().buckets[place->bucket], job_->step_config(), kept) : std::nullopt;
  if (!dtype) return {};
  at::Tensor whole = job_->parameter(name, kept);
  if (!anywhere(whole.defined())) return {};
  if (!whole.defined()) whole = at::zeros(sizes_of(name, kept), scalar_type(*dtype));
  if (!together_) return whole;
  // float64 holds every count
  at::Tensor sums = whole.is_floating_point() ? whole : whole.to(at::kDouble);
  sum({bytes_of(sums), sums.nbytes()}, data_type(sums.scalar_type()));
  return sums.to(whole.scalar_type());
}

int64_t TrainingRun::peak_bytes() const {
  int64_t out = 0;
  for (DeviceRun* device : job_->devices()) out = std::max(out, device->memory().peak());
  return out;
}

std::vector<DeviceFlight> TrainingRun::flights() {
  std::vector<DeviceFlight> out = flights_of(job_->devices());
  if (together_) job_->watched([&] { out = together_->gather(out); });
  return out;
}

}  // namespace piper
