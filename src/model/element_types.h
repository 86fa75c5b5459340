// What training keeps in memory for every element of a parameter.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "model/model_graph.h"

namespace piper {

/// What lies in memory for every element.
struct ElementTypes {
  DType weights = DType::Float32;
  DType gradients = DType::Float32;
  std::optional<DType> master;     // only if it differs from the weights
  DType moments = DType::Float32;  // as wide as the master copy or the weights; without a master copy at least float32
  std::optional<DType> master_gradients;  // only if it differs from the gradients
  std::optional<DType> ema = {};          // an exponential moving average of the weights, if kept: as wide as moments
  bool random_rounding = false;           // moments are narrower than that, and rounded at random
  /// In which type an update computes: float64 if anything is of that type, else float32.
  DType arithmetic() const;
  friend bool operator==(const ElementTypes&, const ElementTypes&) = default;
};
ElementTypes element_types(const StepConfig& step, DType weights);
/// E105: moments of that type make no sense.
Checked check_moments(const StepConfig& step);

/// The state of a range: moment by moment, then the master copy and the moving average of the weights, then the master
/// copy of the gradients; each `count` elements long.
int64_t state_bytes(const ElementTypes& types, Optimizer kind, int64_t count);
/// The same of what a checkpoint has of an element besides its weight: no gradients.
int64_t saved_state_bytes(const ElementTypes& types, Optimizer kind);

}  // namespace piper
