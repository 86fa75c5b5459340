// The two short trainings of a combination.
#pragma once

#include <vector>

#include "runtime/device_run.h"
#include "train_loop/combination.h"

namespace piper {

struct Leg {
  DType dtype;
  Optimizer optimizer;
  Issue issue;
};

inline std::vector<Leg> legs_of(const Combination& c) {
  if (c.legs == Legs::AdamWInFloat64)
    return {{DType::Float64, Optimizer::AdamW, Issue::Ahead}, {DType::Float32, Optimizer::Momentum, Issue::Serial}};
  return {{DType::Float32, Optimizer::AdamW, Issue::Serial}, {DType::Float64, Optimizer::Momentum, Issue::Ahead}};
}

}  // namespace piper
