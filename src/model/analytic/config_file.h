// A model configuration in TOML: `[model]` and `[step]`. All keys: docs/model.md.
#pragma once

#include "base/result.h"
#include "model/analytic/model_config.h"
#include "model/analytic/step_overrides.h"

namespace piper {

struct ConfigFile {
  ModelConfig model;
  StepOverrides step;
  SourceRange model_table;  // where to point if the model as a whole is refused
};

/// Reads and checks [model] and [step]; the file may have `other_sections` too, which are for others. Anything wrong is
/// E111 at the key or value it is about; an unknown model or architecture is E112.
Result<ConfigFile> parse_config(const SourceFilePtr& file, const std::vector<std::string>& other_sections = {});

/// What a configuration says about training: read by src/train, passed over by whoever wants the model only.
inline const std::vector<std::string> training_sections = {"optimizer", "lr_schedule", "data", "evaluation", "run"};

}  // namespace piper
