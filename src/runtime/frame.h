// Everything that changes while a device executes its plan: buffers, the step's inputs, its scalars.
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

/// What happens after a step whose loss or gradients are not finite; such a step changes no weights.
enum class NotFinite {
  Stop,  // the run ends with an error
  Skip   // it continues
};

/// Gradients may be accumulated over several steps before weights are updated.
struct Accumulation {
  int64_t steps = 1;         // that make one update
  int64_t index = 0;         // of this step among them
  double rescale = 1;        // factor on the sums of earlier steps, so that they weigh as much as this one
  double excess = 1;         // in the last step: by this factor every step weighs more than in the mean of all
  bool reads_ahead = false;  // in the first step `fill` has the samples of all of them
  bool first() const { return index == 0; }
  bool last() const { return index + 1 == steps; }
  /// By which the sums of all steps are divided.
  double divisor() const { return static_cast<double>(steps) * excess; }
};

/// The arguments of a step.
struct StepSettings {
  int64_t step = 0;   // from 0
  uint64_t seed = 0;  // of its random numbers
  OptimizerSettings optimizer;
  std::vector<ParameterGroup> groups;  // parameters with other settings
  int64_t updates = 0;                 // made before this step; fewer than steps if some were skipped
  std::optional<double> clip;          // maximum norm of all gradients together
  std::optional<double> clip_value;    // maximum absolute value of a gradient, applied after that
  NotFinite not_finite = NotFinite::Stop;
  Accumulation accumulation;
  /// Fills a tensor with the samples of an input from `first_sample` on. Called from several threads.
  std::function<void(std::string_view input, int64_t first_sample, at::Tensor& into)> fill;
};

/// Sums over the whole step, equal on all devices.
struct StepScalars {
  double loss = 0;                             // of all parts of the batch
  double squares = 0;                          // of all gradients
  std::vector<double> parameter_squares = {};  // of each of those whose sizes updates need
};

/// The loss of a slice of the batch, or of a part of it.
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

/// Inputs that keep their addresses from step to step; one copy brings all of them there.
struct KeptInputs {
  std::vector<FrameInput> inputs;
  at::Tensor on_host, on_device;                             // all of them
  std::vector<at::Tensor> inputs_on_host, inputs_on_device;  // the same one by one
};

/// How rows for experts were exchanged since the run began.
struct RowCounts {
  std::atomic<int64_t> exchanges = 0;          // of a slice's rows in a pass of a layer
  std::atomic<int64_t> longer = 0;             // of them: in more than one round
  std::atomic<int64_t> rows = 0, further = 0;  // that this device got: all, in further rounds

  void count(int64_t rounds, int64_t received, int64_t in_further_rounds) {
    exchanges += 1;
    longer += rounds > 1 ? 1 : 0;
    rows += received;
    further += in_further_rounds;
  }
};

class Frame {
 public:
  /// `device`: that of its tensors.
  Frame(const PlanTemplate& program, c10::Device device);

  c10::Device device() const { return device_; }

  at::Tensor& operator[](BufferId buffer) { return buffers_[buffer]; }

  /// Before a step: zeroes gradients unless they accumulate, and drops all buffers that are not persistent.
  void begin(const StepSettings& settings);
  /// Releases a buffer that the plan frees; its memory is freed when all operations that use it have ended too.
  void release(BufferId buffer);
  void ended(OpId op);
  /// Loads an input unless it is loaded already; operations that read it may call this concurrently.
  void load_input(const FrameInput& input);
  /// Before the first step: from now on these inputs keep their addresses, outside of the plan's memory, and are loaded
  /// when a step begins.
  void keep_inputs(std::vector<FrameInput> inputs);

  const StepSettings& settings() const { return *settings_; }
  StepScalars scalars;
  std::vector<SliceLoss> losses;  // computed on this device; complete when the scalars are known
  bool scalars_known = false;     // a single device does not sum them before the first update
  RowCounts rows;
  /// Fill buffers before they are freed, to find uses after free.
  bool poison_freed = false;
  /// A CUDA graph is being recorded: operations do not run yet.
  bool recording = false;

  /// A copy of its contents, to restore.
  struct State {
    Table<BufferId, at::Tensor> buffers;
    Table<BufferId, int> holds;
  };
  State state() const;
  void go_back(State state);
  /// A buffer that has changed since a state, to repeat the change.
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
  const c10::Device device_;
  const StepSettings* settings_ = nullptr;
  Table<BufferId, at::Tensor> buffers_;
  Table<OpId, std::vector<BufferId>> uses_;  // buffers of a step
  Table<BufferId, int> holds_at_start_;      // operations that use it, and the one that frees it
  Table<BufferId, std::atomic<int>> holds_;
  std::mutex loading_;
  KeptInputs kept_;
};

/// An uninitialized tensor of this form, or a flat one.
at::Tensor make_tensor(const TensorForm& form, c10::Device device = c10::kCPU);
at::Tensor make_flat(DType dtype, int64_t elements, c10::Device device = c10::kCPU);
c10::ScalarType scalar_type(DType dtype);
/// The reverse; nothing for a type that plans do not have.
std::optional<DType> dtype_of(c10::ScalarType type);

/// The memory of a tensor that fills its storage.
std::byte* bytes_of(const at::Tensor& tensor);

}  // namespace piper
