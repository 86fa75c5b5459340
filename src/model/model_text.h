// The text form of a model: parse(print(m)) == m. Grammar and an example: docs/model.md.
#pragma once

#include <string>

#include "model/model_graph.h"

namespace piper {

std::string print(const ModelGraph& model);

/// Reads and verifies.
Result<ModelGraph> parse_model(const SourceFilePtr& file);

}  // namespace piper
