// The models of the equality matrix: small, captured once for each size of slices, trained once for each reference.
#pragma once

#include <string>
#include <vector>

#include "train_loop/trained.h"

namespace piper {

constexpr int64_t subject_batch = 16;
constexpr int subject_experts = 4;

/// A small model of a kind, and what a step of it is.
struct Subject {
  std::string kind;
  int layers = 4;
  DType dtype = DType::Float64;
  Optimizer optimizer = Optimizer::AdamW;
  int64_t batch = subject_batch;
  std::optional<DType> gradients = {};  // where they are not of the same type
  Processor* on = nullptr;              // none: that of this machine
  friend auto operator<=>(const Subject&, const Subject&) = default;
};
/// Those of the matrix.
const std::vector<std::string>& subject_kinds();
bool has_experts(const std::string& kind);
/// Tied weights are on two stages, so that their sums are never in the order of one device.
bool has_tied_weights(const std::string& kind);

const TrainableModel& model_of(const Subject& subject);
const CapturedModel& captured(const Subject& subject, const std::vector<int64_t>& samples);
/// What training with this optimizer means here.
TrainSettings usual_settings(const Subject& subject);
/// One device that runs so many slices in turn.
const Trained& reference(const Subject& subject, int64_t slices);

Result<Compiled> compile_for(const CapturedModel& captured, const std::string& schedule);

}  // namespace piper
