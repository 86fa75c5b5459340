// The reference decoder: a model whose weights, data and losses are published bit by bit, to compare trainers with.
#pragma once

#include <memory>

#include "models/model_module.h"

namespace piper {

/// Scopes: embed, layer (in it attention, and experts in a mixture), head.
std::shared_ptr<ModelModule> make_reference_decoder(const ModelConfig& config, int64_t sequence,
                                                    const TensorMaker& make);

}  // namespace piper
