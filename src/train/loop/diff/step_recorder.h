// A step of a plan, kept so that another can be compared with it.
#pragma once

#include <mutex>

#include "runtime/job.h"
#include "train/loop/diff/reference_step.h"
#include "train/loop/diff/value_place.h"

namespace piper {

class StepRecorder {
 public:
  /// Both outlive it.
  StepRecorder(const Plan& plan, const ModelGraph& graph);

  void begin(Job& job);
  /// For RunOptions::after_op: parts that devices have are put together.
  void after(int device, OpId op, Frame& frame);
  /// `losses`: of how many slices the gradients are to be, as sums.
  ReferenceStep end(Job& job, const StepOutcome& outcome, int64_t losses);

 private:
  void keep(int device, BufferId buffer, const PlanLabel& label, const at::Tensor& here);

  const Plan& plan_;
  const ModelGraph& graph_;
  const ValuePlaces places_;
  std::mutex mutex_;
  ReferenceStep out_;
};

}  // namespace piper
