// Whether a run may resume with another configuration than the one it was saved with.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace piper {

/// One line for every key that is written otherwise and may be: `[optimizer] learning_rate: 0.001, was 0.003`.
/// E905, with both values: another model, other element types, another optimizer, or another order of the data. There
/// the values count, not how they are written.
Result<std::vector<std::string>> compare_config(const SourceFilePtr& now, const SourceFilePtr& saved);

}  // namespace piper
