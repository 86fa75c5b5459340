// The text form of a training DAG: tables first, then a line per node with what flows into it. Grammar: docs/dag.md.
//   %7 = compute layer.0 B mb=1 @ g0 on compute after(%2:x0, %6:d.x1, %3/4) by=2 placed=3 from=%5
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "ir/training_dag.h"

namespace piper {

std::string print(const TrainingDag& dag);

/// Reads what print wrote, for the same model; printing it again gives the same text. E410, E101.
Result<TrainingDag> parse_dag(const SourceFilePtr& file, std::shared_ptr<const ModelGraph> model);

}  // namespace piper
