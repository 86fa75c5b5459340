// Decoders of the GPT, Llama, Qwen3 and Mixtral families, dense or with experts.
#pragma once

#include <memory>

#include "models/model_module.h"

namespace piper {

/// Scopes: embed, layer (in it attention, and experts in a mixture), head. Parameters are those of the analytic model.
std::shared_ptr<ModelModule> make_decoder(const ModelConfig& config, int64_t sequence, const TensorMaker& make);

}  // namespace piper
