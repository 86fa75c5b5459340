// One executor per operation of a device's plan: what to do is decided once, before the first step.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "plan/bucket_part.h"
#include "plan/plan.h"
#include "runtime/computation.h"
#include "runtime/frame.h"
#include "runtime/plan_index.h"
#include "runtime/processor.h"

namespace piper {

class Failure;
struct RunOptions;

class Executor {
 public:
  virtual ~Executor() = default;
  /// Runs on the operation's stream, after all it waits for: called by the stream's thread, or on a GPU by the
  /// launching one.
  virtual void run(Frame& frame) = 0;

  /// How many operators of libtorch it calls.
  virtual int64_t operators() const { return 0; }
  /// Whether it can be part of a CUDA graph, recorded by `run` in a frame that records.
  virtual bool can_be_recorded() const { return false; }
  /// Called before a graph is recorded or launched: provides what changes in every step.
  virtual void renew(Frame&) {}
  /// Inputs of the model that it reads.
  virtual std::vector<FrameInput> inputs() const { return {}; }
};

/// The process groups in which a plan's devices communicate, by stream and members: each stream has
/// its own, so that they can communicate at once.
using ProcessGroups = std::map<std::pair<PlanStreamId, std::vector<int>>, int>;
/// Makes them, and connections for transfers, in the same order on every device. Throws RunError: a process group
/// cannot be made, and which operation of the device needs it.
ProcessGroups make_process_groups(const Plan& plan, Communicator& communicator);

/// One device of a run: its plan, and what it works with.
struct DeviceContext {
  const Plan& plan;
  const PlanTemplate& program;
  int device;
  const StepConfig& step;
  Computations& computations;
  Communicator& communicator;
  Processor& processor;
  const RunOptions& options;
  Failure& failure;
};

/// What executors are made from.
struct Preparation : DeviceContext {
  const ProcessGroups& groups;
  const PlanIndex& index;
  Frame& frame;    // with its persistent buffers
  Branch* branch;  // of the device; may be null

  const PlannedOp& op(OpId index) const { return program.ops[index]; }
  const PlanBuffer& buffer(BufferId index) const { return program.buffers[index]; }
  const Communication& communication(const PlannedOp& op) const { return plan.communications[op.communication]; }
  const std::string& name(const PlanLabel& label) const { return plan.names[label.name]; }
  /// The bucket that an operation or a buffer is about, if it is about one.
  const PlanBucket* bucket(const PlanLabel& label) const;
  /// The first of the buffers with this category.
  std::optional<BufferId> find(const std::vector<BufferId>& buffers, Category category) const;
  /// The members of the part of a collective to which the device belongs.
  std::vector<int> members(const Communication& communication) const { return members_of(communication.over); }
  /// The part of a partition that the device belongs to.
  std::vector<int> members_of(PartitionId partition) const;
  /// Samples of a slice on one device, as in the computations whose values the collective moves.
  int64_t samples_over(const Communication& communication) const;
  int group(const PlannedOp& op, const std::vector<int>& members) const { return groups.at({op.stream, members}); }
  /// Of a collective.
  int group(const PlannedOp& op) const { return group(op, members(communication(op))); }
  /// The sequence number of a communication, unique over all steps.
  int64_t sequence(CommunicationId communication, const Frame& frame) const {
    return frame.settings().step * static_cast<int64_t>(plan.communications.size()) + communication.value;
  }
};

std::unique_ptr<Executor> make_run(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_send(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_receive(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_all_reduce(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_reduce_scatter(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_reduce_pieces(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_all_gather(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_all_to_all(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_sum_into_parts(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_join_parts(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_local_slice(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_shift(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_gather_counts(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_exchange_rows(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_rounds(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_update(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_update_matrices(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_update_factored(const Preparation& prepare, OpId op);
std::unique_ptr<Executor> make_executor(const Preparation& prepare, OpId op);

/// Where an optimizer has to know how large parameters are: those that it updates as a whole, in the order of the plan.
std::vector<NameId> sized_parameters(const Plan& plan, const StepConfig& step);

/// What a device contributes to the step's scalars: its losses, and the gradients that nobody else counts; and where
/// updates depend on them its elements of every parameter.
class LocalScalars {
 public:
  LocalScalars(const Preparation& prepare, const std::vector<BufferId>& reads);
  /// Also stores the losses in the frame.
  StepScalars sum(Frame& frame) const;

 private:
  struct Loss {
    BufferId buffer;
    int slice;
  };
  struct Counted {
    BufferId buffer;
    DType dtype;
    int64_t offset, count;
  };
  /// Elements of a parameter: weights, or their master copy among the bytes of the state.
  struct Sized {
    size_t parameter;
    BufferId buffer;
    DType dtype;
    int64_t first_byte, count;
  };
  void find_sized(const Preparation& prepare);

  Kernels& processor_;
  std::vector<Loss> losses_;
  std::vector<Counted> gradients_;
  std::vector<Sized> sized_;
  size_t parameters_ = 0;
};

DataType data_type(DType dtype);
DataType data_type(c10::ScalarType type);

}  // namespace piper
