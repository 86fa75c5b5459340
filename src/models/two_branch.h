// Two encoders into one decoder: a model that is no chain.
#pragma once

#include <memory>

#include "models/model_module.h"

namespace piper {

/// Inputs: what the encoders read (`left`, `right`), then `tokens` and `targets` of the decoder, whose layers look at
/// what both encoders made. Scopes: left and right (in each embed and layer), then embed, layer (in it attention and
/// cross), head.
std::shared_ptr<ModelModule> make_two_branch(const ModelConfig& config, int64_t sequence, const TensorMaker& make);

}  // namespace piper
