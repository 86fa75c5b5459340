// Models computed by formula from a configuration: compiled, checked and simulated without ever being instantiated.
#pragma once

#include "model/analytic/chunk_writer.h"

namespace piper {

/// The model's chunks for one slice of the batch. Scopes: embed, layer (in it attention, experts), head; in the form
/// that can be sharded also core, in attention.
/// Refused: configurations that make no sense (E111), and sizes beyond what a model may have (E111).
Result<ModelGraph> analytic_model(const ModelConfig& config, const StepConfig& step, LayerForm form = LayerForm::Blocks,
                                  TokenForm tokens = {});

}  // namespace piper
