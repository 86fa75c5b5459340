// Models of our own as transformers has them: names of tensors, and config.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/analytic/model_config.h"
#include "model/model_graph.h"
#include "models/saved_name.h"

namespace piper {

struct HuggingFaceModel {
  std::vector<SavedName> names;  // in the order of the parameters
  std::string config;            // the text of config.json
};
/// Nothing: transformers has no model that computes the same, for example because of its activation.
std::optional<HuggingFaceModel> hugging_face_model(const ModelConfig& model, const StepConfig& step,
                                                   const std::vector<std::string>& parameters);

}  // namespace piper
