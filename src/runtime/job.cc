#include "runtime/job.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <thread>

#include "runtime/memory_errors.h"
#include "runtime/plain_allocator.h"

namespace piper {

using namespace std::chrono_literals;

namespace {

std::vector<DeviceProgress> progress_shared(const std::vector<DeviceRun*>& devices, const JobOptions& options) {
  std::vector<DeviceProgress> out;
  for (const DeviceRun* device : devices) out.push_back(progress_of(*device));
  return options.share_progress ? options.share_progress(std::move(out)) : out;
}

/// Before the first step: memory that is not there is an error of the run, too.
template <class Work>
void take_memory(std::string_view what, Work work) {
  try {
    work();
  } catch (const std::exception& problem) {
    if (!is_out_of_memory(problem)) throw;
    throw RunError(RunProblem::Memory, fmt::format("{}: {}", what, plain_text(problem)));
  }
}

}  // namespace

/// Tells the others how far the devices are and, during steps, checks whether the run makes progress.
class Job::Watchdog {
 public:
  Watchdog(const Plan& plan, const std::vector<DeviceRun*>& devices, Failure& failure, const JobOptions& options)
      : plan_(plan),
        devices_(devices),
        failure_(failure),
        options_(options),
        watch_(plan, options.timeout, options.predictions, options.judges),
        thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  /// While it lives, progress is expected.
  class Watching {
   public:
    explicit Watching(Watchdog& watchdog) : watchdog_(watchdog) { watchdog_.set_busy(true); }
    ~Watching() { watchdog_.set_busy(false); }

   private:
    Watchdog& watchdog_;
  };

 private:
  void set_busy(bool busy) {
    const std::lock_guard lock(mutex_);
    busy_ = busy;
    watch_.rest();
  }

  void watch() {
    std::unique_lock lock(mutex_);
    const auto pause = std::chrono::duration<double>(std::min(options_.timeout.least / 4, 0.25));
    while (!changed_.wait_for(lock, pause, [&] { return ended_; })) {
      const std::vector<DeviceProgress> devices = progress_shared(devices_, options_);
      if (!busy_ || failure_.happened()) continue;
      if (const auto trouble = trouble_of_any(devices)) {
        failure_.report(*trouble);
        continue;
      }
      if (const auto complaint = watch_.look(devices, static_cast<double>(now()) * 1e-9))
        failure_.report({RunProblem::Stalled, fmt::format("{}\n{}", *complaint, describe_progress(plan_, devices))});
    }
  }

  std::optional<RunError> trouble_of_any(const std::vector<DeviceProgress>& progress) const {
    for (const DeviceRun* device : devices_)
      if (const auto trouble = device->communicator().trouble())
        return trouble->elsewhere
                   ? RunError(RunProblem::Elsewhere, trouble->what)
                   : RunError(RunProblem::Operation, fmt::format("device {}: {}\n{}", device->device(), trouble->what,
                                                                 describe_progress(plan_, progress)));
    return {};
  }

  const Plan& plan_;
  const std::vector<DeviceRun*>& devices_;
  Failure& failure_;
  const JobOptions& options_;
  Watch watch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false, busy_ = false;
  std::thread thread_;
};

Job::Job(std::shared_ptr<const Plan> plan, const StepConfig& step, Computations& computations,
         std::vector<std::unique_ptr<Communicator>> communicators, JobOptions options)
    : plan_(std::move(plan)),
      step_(step),
      computations_(computations),
      options_(std::move(options)),
      communicators_(std::move(communicators)) {
  show_tensors_to_sanitizer();
  std::erase_if(communicators_, [programs = template_of_device(*plan_)](const auto& communicator) {
    return !programs[static_cast<size_t>(communicator->device())].valid();  // a lost device
  });
  for (const auto& communicator : communicators_)
    devices_.push_back(
        std::make_unique<DeviceRun>(*plan_, step_, computations_, *communicator, failure_, options_.run));
  for (const auto& device : devices_) {
    take_memory(fmt::format("device {}, before its first operation", device->device()), [&] { device->prepare(); });
    device_pointers_.push_back(device.get());
  }
  watchdog_ = std::make_unique<Watchdog>(*plan_, device_pointers_, failure_, options_);
}

Job::~Job() = default;

std::vector<DeviceProgress> Job::progress() const {
  return progress_shared(device_pointers_, options_);
}

void Job::set_parameters(const std::function<void(const std::string& name, at::Tensor& whole)>& fill) {
  take_memory("while weights are set",
              [&] { piper::set_parameters(*plan_, step_, computations_, device_pointers_, fill); });
}

at::Tensor Job::parameter(const std::string& name, Kept kept) {
  return get_parameter(*plan_, step_, computations_, device_pointers_, name, kept);
}

void Job::set_parameter(const std::string& name, Kept kept, const at::Tensor& whole) {
  piper::set_parameter(*plan_, step_, computations_, device_pointers_, name, kept, whole);
}

void Job::watched(const std::function<void()>& wait) {
  try {
    const Watchdog::Watching watching(*watchdog_);
    wait();
  } catch (const CommunicationError&) {
    if (failure_.happened()) throw failure_.error();
    throw;
  }
}

bool Job::weights_are_whole() const {
  if (!failure_.happened()) return true;
  for (const auto& device : devices_) {
    const FlightRecorder& recorder = device->recorder();
    for (const OpId op : device->program().ops.ids())
      if (device->program().ops[op].kind == OpKind::Update && recorder.times(recorder.step(), op).started != 0)
        return false;
  }
  return true;
}

StepOutcome Job::step(const StepSettings& settings) {
  const Nanoseconds start = now();
  {
    const Watchdog::Watching watching(*watchdog_);
    for (const auto& device : devices_) device->start(settings);
    for (const auto& device : devices_) device->wait();
  }
  if (failure_.happened()) {
    const auto all_idle = [&] {
      return std::all_of(devices_.begin(), devices_.end(), [](const auto& device) { return device->idle(); });
    };
    for (int i = 0; i < 200 && !all_idle(); ++i) std::this_thread::sleep_for(25ms);
    stuck_ = !all_idle();
    throw failure_.error();
  }
  const StepScalars& scalars = devices_[0]->frame().scalars;
  StepOutcome outcome;
  const auto losses = static_cast<double>(std::max<int64_t>(plan_->losses, 1));
  outcome.loss = scalars.loss / losses;
  outcome.updates = settings.accumulation.last();
  const double sums = losses * settings.accumulation.divisor();
  outcome.gradient_norm = outcome.updates ? std::abs(std::sqrt(scalars.squares) / sums)  // a NaN has a sign
                                          : std::numeric_limits<double>::quiet_NaN();
  outcome.skipped = outcome.updates && (!std::isfinite(outcome.loss) || !std::isfinite(outcome.gradient_norm));
  for (const auto& device : devices_)
    outcome.losses.insert(outcome.losses.end(), device->frame().losses.begin(), device->frame().losses.end());
  outcome.seconds = static_cast<double>(now() - start) * 1e-9;
  if (outcome.skipped && settings.not_finite == NotFinite::Stop)
    throw RunError(RunProblem::NotFinite, fmt::format("step {} is not finite: loss {}, norm of the gradients {}",
                                                      settings.step, outcome.loss, outcome.gradient_norm));
  return outcome;
}

}  // namespace piper
