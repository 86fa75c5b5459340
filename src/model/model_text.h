// The text form of a model: parse(print(m)) == m. Grammar and an example: docs/model.md.
#pragma once

#include <string>

#include "base/text/scanner.h"
#include "model/model_graph.h"

namespace piper {

std::string print(const ModelGraph& model);

/// Reads and verifies.
Result<ModelGraph> parse_model(const SourceFilePtr& file);

/// `F`, if that is what stands here and not the name of a dim; for texts that refer to chunks.
std::optional<Pass> accept_pass(Scanner& in);

}  // namespace piper
