// A compiled step, with what it was made from.
#pragma once

#include <memory>
#include <optional>

#include "compile/compile.h"
#include "cost/cost_table.h"
#include "train/loop/prepare_training.h"

namespace piper::python {

struct Plan {
  std::shared_ptr<const Compiled> compiled;
  Cluster cluster;  // as it was given; plans that do not fit can still be looked at
  std::optional<CostTable> costs;
  bool predicts = false;  // one of them was named: something is known about the devices
  /// Of a captured model only: what a trainer runs.
  std::optional<TrainableModel> trainable;
  std::shared_ptr<const CapturedModel> captured;

  const piper::Plan& plan() const { return compiled->plan; }
};

}  // namespace piper::python
