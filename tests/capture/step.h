// One training step in two ways: eager autograd, and the programs of a captured model one after the other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "capture/capture.h"

namespace piper {

using Tensors = std::map<std::string, at::Tensor>;

struct StepResult {
  at::Tensor loss;
  Tensors gradients;  // of every parameter that has one
  Tensors buffers;    // after the step
};

/// How backward runs.
enum class ReplayedBackward {
  Whole,      // B of the chunks, last first
  Halves,     // BI of the chunks, then all BW at the very end, first chunk first
  Recompute,  // everything that forward saved is dropped and computed again
};

/// Eager autograd, with the random numbers that a captured model would draw.
StepResult eager_step(const MetaModel& model, const std::vector<at::Tensor>& inputs, const RandomKey& random);

/// Parameters and buffers come from `weights`, a model with real tensors; it is not changed.
StepResult captured_step(const CapturedModel& captured, const MetaModel& weights, const std::vector<at::Tensor>& inputs,
                         const RandomKey& random, ReplayedBackward backward);

/// How many tensors of the two are equal bit by bit, of how many; differences are gtest failures.
struct Equality {
  int equal = 0, all = 0;
};
Equality expect_bit_equal(const StepResult& a, const StepResult& b);

/// One step with the programs, by value, for tests that look closer.
class Stepper {
 public:
  Stepper(const CapturedModel& captured, const MetaModel& weights, const std::vector<at::Tensor>& inputs,
          const RandomKey& random);
  void run(ChunkId chunk, Pass pass);
  void run_forward();
  StepResult result();

  std::map<ValueId, at::Tensor> values;
  int64_t last_peak = 0;  // bytes that the last pass took at most

 private:
  const CapturedModel& captured_;
  int64_t samples_;
  RandomKey random_;
  Tensors parameters_, states_, gradients_;
};

}  // namespace piper
