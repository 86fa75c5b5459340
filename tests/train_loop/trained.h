// Trains a small model under a schedule, on devices that are threads, and keeps everything that can be compared.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/world.h"
#include "models/build_model.h"
#include "runtime/job.h"
#include "train/loop/prepare_training.h"

namespace piper {

using Tensors = std::map<std::string, at::Tensor>;

struct TrainSettings {
  int64_t steps = 2;
  OptimizerSettings optimizer;
  std::optional<double> clip;
  NotFinite not_finite = NotFinite::Stop;
  JobOptions job;
  /// Faults: in the plan, in what computations do, in what is communicated.
  std::function<void(Plan&)> plant;
  std::function<std::unique_ptr<Computations>(Computations&)> computations;
  std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)> communicator;
  /// Processes that train together; none: devices are threads of this one. Of others' devices nothing is kept.
  World* world = nullptr;
};

struct Trained {
  std::vector<double> losses, norms;  // by step
  std::vector<Tensors> gradients;     // by step, of the mean loss
  Tensors weights, moment1, moment2;  // after the last step
  Tensors masters;                    // the optimizer's own copies of the weights, where it has them
  std::map<std::string, bool> ordered;
  std::vector<int64_t> peak_bytes;     // by device
  std::vector<int64_t> planned_bytes;  // the plan's peak, with streams side by side
  std::vector<int64_t> serial_bytes;   // the plan's peak if every operation ends before the next one starts
  bool copies_equal = true;            // devices with the same parameters have the same bits
  std::map<int, uint64_t> bits;        // by device: hash of all that outlives a step, after every step
  int devices = 0;
};

/// Throws what is refused, and what fails.
Trained train(const TrainableModel& model, const std::string& schedule, const TrainSettings& settings);
/// The same with a plan that was made from this capture.
Trained train(const TrainableModel& model, const CapturedModel& captured, std::shared_ptr<const Plan> plan,
              const TrainSettings& settings);

/// One device that runs so many slices of the batch one after the other.
std::string in_turn(int64_t slices);

/// Of the whole batch of a step, what an input has from this sample on. Depends on nothing else.
void fill_input(const StepConfig& config, int64_t step, std::string_view input, int64_t first_sample, at::Tensor& into);
/// Seed of the step's random numbers.
uint64_t seed_of_step(int64_t step);

/// Softmax does not feel a bias of the keys: its gradient is rounding errors, which AdamW makes steps of.
Trained without_key_bias(Trained of);

/// max |a - b| / max |b|, the largest of all tensors of all steps; and which it is.
struct Difference {
  double error = 0;
  std::string where;
};
Difference compare(const Trained& run, const Trained& reference);
/// Gradients of the first step that the plan calls ordered but that are not equal bit by bit; where all are ordered,
/// everything else that is not equal.
std::vector<std::string> wrongly_ordered(const Trained& run, const Trained& reference);
/// All of the above, and copies that differ: nothing where a run is right.
std::vector<std::string> complaints(const Trained& run, const Trained& reference, double tolerance);

}  // namespace piper
