// Whether a configuration makes sense, before anything is computed from it.
#pragma once

#include <optional>
#include <string>

#include "model/analytic/model_config.h"
#include "model/model_graph.h"

namespace piper {

/// What is wrong, and with which key; the caller knows where the key was written.
struct ConfigProblem {
  std::string key;
  std::string message;
  std::string help;
};

/// Bounds, missing and meaningless fields, and fields that contradict each other.
std::optional<ConfigProblem> find_problem(const ModelConfig& config);

/// Batch and sequence in bounds, dtypes that can be trained with, the sequence not longer than learned positions.
std::optional<ConfigProblem> find_problem(const ModelConfig& config, const StepConfig& step);

}  // namespace piper
