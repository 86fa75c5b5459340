// Steps in which computations only take time, so that a machine with few cores can run many devices as if each had its
// own: what is left is what the runtime, the plan and the emulated network make of it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "comm/exact_sleep.h"
#include "comm/local/local_world.h"
#include "cost/cost_table.h"
#include "must.h"
#include "runtime/job.h"
#include "runtime/passing_computations.h"
#include "schedule/schedule_text.h"
#include "train/loop/emulated_network.h"
#include "train/loop/local_cluster.h"
#include "train/loop/prepare_training.h"
#include "train/loop/profile.h"

namespace piper {

/// The computations of another. They compute in their first step; afterwards they give the same tensors again, after as
/// long as the table says. No table: at once.
class WaitingComputations : public PassingComputations {
 public:
  WaitingComputations(Computations& to, const CostTable* costs) : PassingComputations(to), costs_(costs) {}

  std::unique_ptr<Computation> make(const ComputationSite& site) override {
    return std::make_unique<Waiting>(to_.make(site),
                                     costs_ ? must(measured_seconds(*costs_, site.name, site.pass, site.samples)) : 0);
  }

 private:
  using Clock = std::chrono::steady_clock;
  class Waiting : public Computation {
   public:
    Waiting(std::unique_ptr<Computation> inner, double seconds) : inner_(std::move(inner)), seconds_(seconds) {}
    void run(const ComputationArguments& arguments) override {
      const auto end =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
      if (inner_) {
        inner_->run(arguments);
        given_ = arguments.writes;
        inner_.reset();
      }
      arguments.writes = given_;
      if (seconds_ > 0) sleep_exactly(end);
    }

   private:
    std::unique_ptr<Computation> inner_;
    double seconds_;
    std::vector<at::Tensor> given_;
  };

  const CostTable* costs_;
};

inline StepOutcome take_step(Job& job, int64_t step) {
  StepSettings settings;
  settings.step = settings.updates = step;
  settings.fill = [](std::string_view, int64_t, at::Tensor& into) { into.zero_(); };
  return job.step(settings);
}

inline int device_count(const Plan& plan) {
  return static_cast<int>(template_of_device(plan).size());
}

/// What `piper profile` measures.
inline CostTable profiled(const TrainableModel& model, const PreparedTraining& prepared) {
  constexpr int steps = 5;
  CapturedComputations real(*prepared.captured, model.initialize);
  TimedComputations timed(real);
  JobOptions options;
  options.run.recorded_steps = steps;
  Job job(prepared.plan, model.step, timed, make_local_world(device_count(*prepared.plan)), options);
  job.set_parameters(model.initialize);
  take_step(job, 0);  // the first is slower
  timed.forget();
  for (int i = 1; i <= steps; ++i) take_step(job, i);
  CostTable costs = timed.costs();
  add_update_costs(costs, *prepared.plan, job.devices());
  return costs;
}

enum class Computing { Waits, Computes };

/// A plan on waiting devices, or on computing ones to compare with.
class WaitingJob {
 public:
  /// All outlive it. `costs`: none: computations take no time; `emulate`: none: messages are as fast as memory.
  WaitingJob(const TrainableModel& model, const PreparedTraining& prepared, const CostTable* costs,
             const Cluster* emulate, Computing how = Computing::Waits)
      : real_(*prepared.captured, model.initialize), waiting_(real_, costs) {
    LocalOptions local;
    if (emulate)
      local.seconds = [seconds = communication_seconds(*prepared.plan, *emulate)](int64_t number) {
        return seconds[CommunicationId(static_cast<size_t>(number) % seconds.size())];
      };
    Computations& computations = how == Computing::Waits ? static_cast<Computations&>(waiting_) : real_;
    job_ = std::make_unique<Job>(prepared.plan, model.step, computations,
                                 make_local_world(device_count(*prepared.plan), std::move(local)));
    job_->set_parameters(model.initialize);
  }

  Job& job() { return *job_; }
  size_t operations() const {  // of a step, on all devices
    size_t count = 0;
    for (const DeviceRun* device : job_->devices()) count += device->program().ops.size();
    return count;
  }
  /// Its seconds.
  double step() { return take_step(*job_, next_++).seconds; }

 private:
  CapturedComputations real_;
  WaitingComputations waiting_;
  std::unique_ptr<Job> job_;
  int64_t next_ = 0;
};

inline TrainableModel model_of(const std::string& text) {
  return must(build_model(make_source("bench.toml", text), 0));
}
inline Schedule schedule_of(const std::string& text) {
  return must(parse_schedule(make_source("bench.piper", text)));
}

/// Devices that are threads, joined by one level of links.
inline Cluster one_level(double latency, double bandwidth) {
  return must(parse_cluster(
      make_source("bench cluster", fmt::format("[device.thread]\nlaunch = \"0us\"\nissue = \"0.2us\"\n\n"
                                               "[[nodes]]\ndevice = \"thread\"\n\n"
                                               "[[links]]\nlatency = \"{:.3f}us\"\nbandwidth = \"{:.6f}MB/s\"\n",
                                               latency * 1e6, bandwidth * 1e-6))));
}

struct Sample {
  double median = 0, least = 0, most = 0;
};
inline Sample sample_of(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return {numbers[numbers.size() / 2], numbers.front(), numbers.back()};
}

}  // namespace piper
