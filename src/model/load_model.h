// Models from wherever a user keeps them.
#pragma once

#include <string>

#include "model/analytic/step_overrides.h"
#include "model/model_graph.h"

namespace piper {

/// `analytic:NAME` is a built-in model; a path that ends in `.toml` is a configuration; any other path is a model in
/// text form. The overrides win over what the configuration says.
Result<ModelGraph> load_model(const std::string& spec, const StepOverrides& overrides = {});

}  // namespace piper
