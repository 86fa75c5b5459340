// Looks at every operation of a step as it ends, and compares what it wrote with what a reference has, or only whether
// it is finite.
#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/job.h"
#include "train/loop/diff/measure.h"
#include "train/loop/diff/reference_step.h"
#include "train/loop/diff/value_place.h"

namespace piper {

/// Something that was compared.
struct Finding {
  enum class What {
    Memory,        // that an operation reads, and that no longer holds what was written
    Input,         // of the model, as a computation reads it
    Weight,        // as a computation reads it
    Value,         // as an operation has written it
    Contribution,  // of a computation to the gradient of a parameter
    Reduction,     // what a communication made of gradients; compared with what it was given
    Gradient,      // of a parameter, when it is updated: the sum of all slices
    Scalar,        // loss or norm of the step
    Update,        // weights after it; compared with what the optimizer makes of these gradients
    Updated,       // weights after it, as the other side has them
    Copy,          // weights after the step; compared with those of the device that has updated them
  } what = What::Value;
  int device = 0;
  OpId op;           // none: what was there before the step, or an update that is missing
  OpId reader;       // of weights and inputs: the operation that reads them
  OpId writer;       // of memory: the operation that has written it; none: it is an input
  OpId last_right;   // of memory: the last operation that has read what was written; none: nobody has
  std::string name;  // of the value or parameter
  int64_t first_sample = -1, samples = 0;
  std::vector<int> devices;  // that have it together; empty: only `device`
  Measure measure;
  double tolerance = 0;
  bool differs = false;
  int rank = 0;  // among what is found about one operation: in the order in which it computes
};

/// A computation that gives something not finite although all that it reads is.
struct Culprit {
  int device = 0;
  OpId op;
  ValuePlace place;
  uint64_t seed = 0;
  std::vector<at::Tensor> reads, parameters;
};

class StepWatch {
 public:
  /// All but `tolerance` outlive it.
  StepWatch(const Plan& plan, const ModelGraph& graph, const Computations& computations, const StepConfig& step,
            std::optional<double> tolerance);

  /// Before a step. None: everything is to be finite.
  void begin(const ReferenceStep* reference, const std::vector<DeviceRun*>& devices);
  /// For RunOptions::after_op.
  void after(int device, OpId op, Frame& frame);
  /// After the step: all findings, in the order of dependence.
  std::vector<Finding> end(Job& job, const StepOutcome& outcome);

  /// After the step: weights that two sides have updated, from gradients that each has. Where rounding decides about a
  /// gradient it decides about the update, too: such elements are left out.
  std::vector<Finding> updated(Job& ours, Job& theirs);

  /// What there is besides, by name: why it could not be compared.
  const std::map<std::string, std::string>& not_compared() const { return not_compared_; }
  const std::vector<Culprit>& culprits() const { return culprits_; }
  const ValuePlaces& places() const { return places_; }
  /// Of a buffer: what was found when it was written, or read for the first time. Null: nothing.
  const Finding* written(int device, BufferId buffer) const;
  const PlannedOp& op(int device, OpId op) const { return devices_.at(device).program->ops[op]; }
  const PlanTemplate& program(int device) const { return *devices_.at(device).program; }

 private:
  using What = Finding::What;
  struct OnDevice {
    const PlanTemplate* program;
    PlanIndex index;
    std::map<BufferId, at::Tensor> before;  // weights and state that will be updated
    std::map<NameId, at::Tensor> updated;   // by bucket: its range of the weights, right after the update
    std::set<NameId> updates;               // buckets that an operation has updated
    std::map<BufferId, at::Tensor> last;    // gradients as the operation before has left them
  };
  /// A parameter in the flat buffer of its bucket.
  struct Flat {
    BufferId buffer;
    int64_t offset = 0, elements = 0;
    at::Tensor of(Frame& frame) const { return frame[buffer].narrow(0, offset, elements); }
  };
  /// What several devices have together.
  struct Joint {
    at::Tensor sum;
    std::vector<int> devices;
  };
  struct Reduced {
    at::Tensor before, after, contribution;
  };
  /// What a buffer of the step holds, as one number, and who has seen it.
  struct Held {
    uint64_t hash = 0;
    OpId writer, last_right;
  };

  void look_at_memory(int device, OpId op, Frame& frame);
  void look_at_run(int device, OpId op, Frame& frame);
  void look_at_value(int device, OpId op, BufferId buffer, Frame& frame, Finding::What what, OpId reader = {});
  void look_at_weight(int device, OpId op, const std::string& name, const ValuePlace& place, Frame& frame, int rank);
  void look_at_contributions(int device, OpId op, const ComputationForm& form, const ValuePlace& place, Frame& frame);
  at::Tensor contributed(const std::string& parameter, const PlannedOp& op, const ValuePlace& place) const;
  void look_at_reduction(int device, OpId op, Frame& frame);
  void look_at_gradients(int device, OpId op, Frame& frame);
  void look_at_update(int device, OpId op, Frame& frame);
  void check_reductions();
  void check_scalars(const StepOutcome& outcome);
  void check_updates(const StepOutcome& outcome);
  void check_copies(Job& job);

  Flat flat(int device, const std::vector<BufferId>& buffers, const std::string& name) const;
  at::Tensor piece(int device, const at::Tensor& whole, const std::string& name, const ValuePlace& place) const;
  at::Tensor join(const std::string& key, const at::Tensor& part, int device, const ValuePlace& place, Partial how,
                  std::vector<int>& devices);
  at::Tensor with_other_rounds(const std::string& key, const at::Tensor& part);
  const Value* ends_read(int device, const PlannedOp& op) const;
  std::vector<int32_t> ends_of(const Value& ends, const ValuePlace& place) const;
  at::Tensor last(int device, BufferId buffer);
  void keep_last(int device, BufferId buffer, at::Tensor gradients);
  OpId writer_before(int device, OpId op, BufferId buffer) const;
  double tolerance_of_computed(c10::ScalarType type) const;
  static Finding found(Finding::What what, int device, OpId op, const std::string& name, int rank = 0);
  void compare(Finding finding, const at::Tensor& ours, const at::Tensor& theirs, double slack = 0, double noise = 0,
               BufferId buffer = {});
  void finite(Finding finding, const at::Tensor& ours, BufferId buffer = {});
  void add(Finding finding, BufferId buffer);
  void not_compared(const std::string& name, const std::string& why);
  void keep_culprit(int device, OpId op, const ComputationForm& form, const ValuePlace& place, Frame& frame);
  const std::string& name(const PlanLabel& label) const { return plan_.names[label.name]; }

  const Plan& plan_;
  const ModelGraph& graph_;
  const Computations& computations_;
  const StepConfig& step_;
  const std::optional<double> tolerance_;
  const std::vector<OpOnDevice> order_;
  const ValuePlaces places_;
  std::set<std::string> partial_;  // parameters whose gradients are sums over devices that share samples
  std::set<std::string> ends_;     // values that say where the rows of each expert end
  std::map<int, OnDevice> devices_;

  const ReferenceStep* reference_ = nullptr;
  std::mutex mutex_;
  std::vector<Finding> findings_;
  std::map<std::pair<int, BufferId>, size_t> written_;  // by device and buffer
  std::map<std::pair<int, BufferId>, Held> held_;       // by device and buffer
  std::map<std::string, Joint> joints_;
  std::map<CommunicationId, std::map<int, Reduced>> reductions_;  // by device
  std::map<CommunicationId, std::pair<int, OpId>> reducing_;      // on a device
  std::set<std::string> seen_;                                    // weights, where they are read more than once
  std::map<std::string, std::string> not_compared_;
  std::vector<Culprit> culprits_;
};

}  // namespace piper
