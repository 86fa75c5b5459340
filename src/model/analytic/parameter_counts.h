// How many parameters a configuration has, by closed formulas.
#pragma once

#include "model/analytic/model_config.h"

namespace piper {

/// All parameters; equals parameter_count of the model built from it.
int64_t total_parameters(const ModelConfig& config);

/// Those that one token meets: top_k of the experts instead of all.
int64_t active_parameters(const ModelConfig& config);

}  // namespace piper
