// Models from wherever a user keeps them.
#pragma once

#include <string>

#include "model/analytic/chunk_writer.h"
#include "model/analytic/step_overrides.h"

namespace piper {

/// `analytic:NAME` is a built-in model; a path that ends in `.toml` is a configuration; any other path is a model in
/// text form, which has the form it has. The overrides win over what the configuration says.
Result<ModelGraph> load_model(const std::string& spec, const StepOverrides& overrides = {},
                              LayerForm form = LayerForm::Blocks, TokenForm tokens = {});

}  // namespace piper
