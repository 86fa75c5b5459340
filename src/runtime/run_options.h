// How a device runs its plan.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>

#include "plan/plan.h"

namespace piper {

class Frame;
class Processor;
struct Turns;

/// When the operations of a device are issued.
enum class Issue {
  Ahead,  // all are issued at once; streams run concurrently
  Serial  // each ends before the next is issued: memory is exactly what the plan says
};

struct RunOptions {
  Issue issue = Issue::Ahead;
  size_t recorded_steps = 2;  // kept by the flight recorder
  /// Called before every operation, on the thread that runs it: tests delay operations and plant faults here.
  std::function<void(int device, OpId op)> before_op;
  /// Called after every operation, on the thread that ran it, before any of its buffers is freed.
  std::function<void(int device, OpId op, Frame& frame)> after_op;
  /// Existing memory for the weights of a bucket; an undefined tensor, or no function: the device allocates it.
  std::function<at::Tensor(int device, const PlanBucket& bucket)> weights;
  bool poison_freed = false;
  Processor* processor = nullptr;  // null: the CPU
  Turns* turns = nullptr;          // null: devices compute concurrently
};

}  // namespace piper
