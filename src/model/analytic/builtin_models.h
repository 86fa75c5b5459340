// Published models by name: `analytic:Qwen3-8B`.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/analytic/model_config.h"

namespace piper {

/// In the order of the table; a text in brackets says the size where the name does not: `Piper-qwen3_1b (1B-A0.7B)`.
std::vector<std::string> builtin_model_names();

/// By name, with or without the brackets, or by the start of a name if only one model starts so; capitals do not
/// matter. Otherwise E112 at `where`.
Result<ModelConfig> builtin_model(std::string_view name, SourceRange where = {});

}  // namespace piper
