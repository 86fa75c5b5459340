// How weights change after a step: flat kernels on raw memory.
//
// Every element is computed alone, in float32 (float64 where something is), with the operations of torch.optim in their
// order. So a range may be cut anywhere: the pieces give the same bits as the whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/element_types.h"
#include "runtime/optimizer/random_rounding.h"

namespace piper {

/// How Muon's learning rate depends on the shape of a matrix, as in torch.optim.Muon.
enum class MuonRate {
  Ratio,     // "original": the root of rows / columns, if that is above 1
  MatchRms,  // "match_rms_adamw": 0.2 times the root of the larger side: rates are those of AdamW
};

/// Those of torch.optim.Adafactor, but for what others have too.
struct AdafactorSettings {
  double beta2_decay = -0.8;      // in update t new squares weigh t to this power
  std::optional<double> epsilon;  // the least root of a second moment; none: that of the weights' type
  double least_rms = 1e-3;        // root mean square of a parameter below which updates get no smaller
  double clip_threshold = 1;      // the largest root mean square of an update, before the learning rate
  friend bool operator==(const AdafactorSettings&, const AdafactorSettings&) = default;
};

/// The values of one step.
struct OptimizerSettings {
  Optimizer kind = Optimizer::AdamW;
  double learning_rate = 1e-3;
  double beta1 = 0.9;     // adamw, lion
  double beta2 = 0.95;    // adamw, lion
  double epsilon = 1e-8;  // adamw: added to the root
  /// adamw, lion: taken off the weights; sgd, momentum: added to the gradients, times the weights
  double weight_decay = 0.1;
  double momentum = 0.9;                 // momentum, muon
  bool nesterov = false;                 // momentum, muon: looks ahead, as Nesterov's
  int64_t newton_schulz_steps = 5;       // muon: of the iteration that makes a matrix orthogonal
  MuonRate muon_rate = MuonRate::Ratio;  // muon
  double adamw_rate = 1;                 // muon: the learning rate of what AdamW updates, as a multiple
  AdafactorSettings adafactor = {};
  double ema_decay = 0.999;  // of the moving average of the weights, where one is kept
  /// Instead of all this: weights go by it against the sign of their gradient, and moments stay as they are.
  std::optional<double> sign_rate = {};
  friend bool operator==(const OptimizerSettings&, const OptimizerSettings&) = default;
};

/// Parameters that are updated otherwise than the rest.
struct ParameterGroup {
  std::string pattern;                   // of their names
  double rate = 1;                       // their learning rate, as a multiple of that of the step
  std::optional<double> weight_decay;    // none: that of the step
  std::optional<double> sign_rate = {};  // they are updated by it, whatever the rate of the step
  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};
/// The first group whose pattern the name matches; none: it is in no group.
std::optional<size_t> group_of(const std::vector<ParameterGroup>& groups, std::string_view parameter);
OptimizerSettings settings_of(const OptimizerSettings& all, const ParameterGroup& group);
/// Those of a bucket: what Muon leaves out is updated by AdamW.
OptimizerSettings settings_of(const OptimizerSettings& all, Optimizer kind);

/// The kernels know float64, float32 and bfloat16, and master copies that are wider than the weights. E105: others.
Checked check_types(const ElementTypes& types);

/// Before the first step: moments are 0, the master copy and the moving average are the weights.
void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                      int64_t count);

/// Elements [begin, end) of a range.
struct ElementPart {
  int64_t begin = 0, end = 0;
  RoundedElements rounded = {};  // where moments are rounded at random: which elements these are
};

/// What becomes of gradients before anything else: they are multiplied, and then cut off.
struct GradientScale {
  double factor = 1;
  std::optional<double> largest;  // absolute value
};

/// One step of a part of one range of `count` elements. `step` counts from 1.
void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step, const GradientScale& scale,
            std::byte* weights, const std::byte* gradients, std::byte* state, int64_t count, ElementPart part);

/// In float64 and in an order that depends on the count alone. Not finite if an element is not.
double sum_of_squares(DType dtype, const std::byte* elements, int64_t count);

}  // namespace piper
