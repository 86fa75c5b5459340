// Models computed by formula from a configuration: compiled, checked and simulated without ever being instantiated.
#pragma once

#include "model/analytic/model_config.h"
#include "model/model_graph.h"

namespace piper {

/// The model's chunks for one slice of the batch. Scopes: embed, layer (in it attention, experts), head.
/// Refused: configurations that make no sense (E111), and sizes beyond what a model may have (E111).
Result<ModelGraph> analytic_model(const ModelConfig& config, const StepConfig& step);

}  // namespace piper
