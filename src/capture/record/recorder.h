// Runs a training step on fake tensors and writes down every operator call.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/result.h"
#include "capture/record/operator_table.h"

namespace piper {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

struct MetaModel;
struct Recording;

/// What was recorded of a model, by its version, what its inputs look like and what it will run on: the model's code,
/// which may be Python's, runs once for each. Threads may share it.
class Recordings {
 public:
  Result<std::shared_ptr<const Recording>> find_or_record(const MetaModel& model,
                                                          const std::vector<NamedTensor>& inputs,
                                                          c10::DeviceType target);

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Recording>> known_;
};

/// A model as capture sees it: fake tensors, and what computes the loss of a slice from the inputs.
struct MetaModel {
  std::vector<NamedTensor> parameters, buffers;
  /// The tensors that these stand for, where there are such.
  std::vector<NamedTensor> originals = {};
  std::function<at::Tensor(const std::vector<at::Tensor>& inputs)> loss;
  /// What else is said of every slice, as means over the batch, asked after `loss`: numbers, or lists of them, whose
  /// elements are NAME.0, NAME.1 and so on. None: nothing.
  std::function<std::vector<NamedTensor>()> metrics = {};
  /// Numbers of every sample, [samples, n], asked after `metrics`. None: nothing.
  std::function<at::Tensor()> of_samples = {};
  /// Where its tensors say they are. Meta: libtorch's meta tensors. Anything else: Python's fake
  /// tensors, which `around` makes of everything and which know all shapes.
  c10::Device device = c10::kMeta;
  /// Called with what makes the inputs, and with forward and backward; runs it once. None: simply run.
  std::function<void(const std::function<void()>& run)> around = {};
  /// Differs where the model's code has come to compute something else. None: it never does.
  std::function<std::string()> version = {};
  /// Its loss may be a mean over some of the batch only: how much that is, is counted in the whole batch.
  bool counts_batch = false;
  /// It says so by dividing by the count last of all.
  bool declares_count = false;
  /// Of this model and of copies of it.
  std::shared_ptr<Recordings> recordings = std::make_shared<Recordings>();
};
/// Runs it as the model wants it.
void run_around(const MetaModel& model, const std::function<void()>& run);

/// What `loss` throws to be refused in its own words.
struct Refused : std::runtime_error {
  explicit Refused(Diagnostic problem) : std::runtime_error(problem.message), diagnostic(std::move(problem)) {}
  Diagnostic diagnostic;
};

struct Recording {
  OperatorGraph graph;
  OperatorTable table;
};

/// Forward and backward over the given inputs (fake tensors), as they would be on the target. Gradients are those of
/// the loss, a scalar.
Result<Recording> record(const MetaModel& model, const std::vector<NamedTensor>& inputs,
                         c10::DeviceType target = c10::kCPU);

/// While `loss` runs: what the recorder knows about an exception that came through it.
struct RecordingState {
  std::string where;                  // the scope and the pass
  std::optional<Diagnostic> refused;  // by the recorder itself, whatever became of the exception on its way
};
RecordingState recording_state();
/// Said where an exception leaves a scope: the innermost is where it came from.
void note_failure();

/// Whether a model is being recorded in this thread.
bool is_recording();
/// While a model is recorded: the number in a tensor of one element, if it follows from the model's code alone and not
/// from inputs, parameters or random numbers.
std::optional<double> fixed_number(const at::Tensor& tensor);

/// Runs `build` so that every tensor it makes is a meta tensor: how a model of any size is constructed.
Checked build_on_meta(const std::function<void()>& build);

}  // namespace piper
