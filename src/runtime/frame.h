// All that changes while a device executes its plan: buffers, the step's inputs and its scalars.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"
#include "runtime/computation.h"
#include "runtime/optimizer/optimizer.h"

namespace piper {

/// What a step whose loss or gradients are not finite is, besides that it changes nothing.
enum class NotFinite {
  Stop,  // an error
  Skip   // left out
};

/// Gradients of several steps may be summed up before weights are updated.
struct Accumulation {
  int64_t steps = 1;         // that make one update
  int64_t index = 0;         // of this step among them
  double before = 1;         // what the sums of the steps before are multiplied by, so that they weigh as this one
  double too_heavy = 1;      // the last: how many times more than in the mean of all each of the steps weighs
  bool reads_ahead = false;  // in the first of them `fill` has the samples of all of them
  bool first() const { return index == 0; }
  bool last() const { return index + 1 == steps; }
  /// Of the sums of all steps.
  double divisor() const { return static_cast<double>(steps) * too_heavy; }
};

/// What a step is given.
struct StepSettings {
  int64_t step = 0;   // from 0
  uint64_t seed = 0;  // of its random numbers
  OptimizerSettings optimizer;
  std::vector<ParameterGroup> groups;  // of parameters that are updated otherwise
  int64_t updates = 0;                 // made before this step: fewer than steps where some were skipped
  std::optional<double> clip;          // the largest norm of all gradients together
  std::optional<double> clip_value;    // the largest absolute value of one, after that
  NotFinite not_finite = NotFinite::Stop;
  Accumulation accumulation;
  /// Fills a tensor with the samples of an input from `first_sample` on. Called from several threads.
  std::function<void(std::string_view input, int64_t first_sample, at::Tensor& into)> fill;
};

/// Sums over the whole step, equal on all devices.
struct StepScalars {
  double loss = 0;     // of all parts of the batch
  double squares = 0;  // of all gradients
};

/// Of one slice of the batch, or of a part of it.
struct SliceLoss {
  int slice = 0;
  double loss = 0;
  std::vector<double> metrics = {};
};

/// An input of the model that a computation reads: the samples of a slice.
struct FrameInput {
  BufferId buffer;
  std::string name;
  int64_t first_sample = 0;
  TensorForm form;
};

/// Inputs that stay where they are, and come there by one copy.
struct KeptInputs {
  std::vector<FrameInput> inputs;
  at::Tensor here, there;                             // all of them: memory of the host, and of the place
  std::vector<at::Tensor> inputs_here, inputs_there;  // the same one by one
};

class Frame {
 public:
  /// `place`: of its tensors.
  Frame(const PlanTemplate& program, c10::Device place);

  c10::Device place() const { return place_; }

  at::Tensor& operator[](BufferId buffer) { return buffers_[buffer]; }

  /// Before a step: gradients are 0 unless it adds to those of the steps before it, and all that does not last is gone.
  void begin(const StepSettings& settings);
  /// The operation has been issued: what it frees may go when nobody uses it any more.
  void issued(OpId op);
  void release(BufferId buffer);
  /// The operation has ended.
  void ended(OpId op);
  /// Makes an input if it is not there yet; operations that read it may come at the same time.
  void load_input(const FrameInput& input);
  /// Before the first step: inputs are at the same places in every step, beside what the plan knows of, and all of
  /// these are there from its beginning.
  void keep_inputs(std::vector<FrameInput> inputs);

  const StepSettings& settings() const { return *settings_; }
  StepScalars scalars;
  std::vector<SliceLoss> losses;  // that were computed here; known when the scalars are
  bool scalars_known = false;     // on a single device nobody sums them up before the first update
  /// What freed buffers are filled with before they go: for the search of premature frees.
  bool poison_freed = false;
  /// Operations are recorded, and do nothing yet.
  bool recording = false;

  /// What it holds, so that it can be as before.
  struct State {
    Table<BufferId, at::Tensor> buffers;
    Table<BufferId, int> holds;
  };
  State state() const;
  void go_back(State state);
  /// What became of it since then, so that it can be made so again.
  struct Change {
    BufferId buffer;
    at::Tensor tensor;
    int holds;
  };
  std::vector<Change> changes_since(const State& before) const;
  void make(const std::vector<Change>& changes);

 private:
  void load_kept();

  const PlanTemplate& program_;
  const c10::Device place_;
  const StepSettings* settings_ = nullptr;
  Table<BufferId, at::Tensor> buffers_;
  Table<OpId, std::vector<BufferId>> uses_;  // buffers that do not last
  Table<BufferId, int> holds_at_start_;      // operations that use it, and the one that frees it
  Table<BufferId, std::atomic<int>> holds_;
  std::mutex loading_;
  KeptInputs kept_;
};

/// An empty tensor of this form, or a flat one.
at::Tensor make_tensor(const TensorForm& form, c10::Device place = c10::kCPU);
at::Tensor make_flat(DType dtype, int64_t elements, c10::Device place = c10::kCPU);
c10::ScalarType scalar_type(DType dtype);
/// The other way round; none: a type that plans do not have.
std::optional<DType> dtype_of(c10::ScalarType type);

/// The memory of a tensor that fills its storage.
std::byte* bytes_of(const at::Tensor& tensor);

}  // namespace piper
