// What leaves the annotated regions of a model.
#pragma once

#include <string>
#include <vector>

#include "model/model_graph.h"

namespace piper {

struct ScopeBorder {
  std::string scope;                 // `layer.3.experts.0`
  std::vector<std::string> outputs;  // values of its forward that chunks outside read in theirs
};

/// In the order in which instances first run.
std::vector<ScopeBorder> scope_borders(const ModelGraph& graph);

}  // namespace piper
