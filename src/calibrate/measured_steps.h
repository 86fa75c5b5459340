// A table of measured steps: CSV, described in docs/cluster.md.
//
//   set,model,schedule,batch,seconds
//   one node,models/gpt.toml,schedules/dp8.piper,64,0.4064
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace piper {

/// A row: what `piper simulate` would be asked, and what was measured instead.
struct MeasuredStep {
  std::string set;              // what its error is reported with; every set weighs the same
  std::string model, schedule;  // as on the command line; files are found from the folder of the table
  std::optional<int64_t> batch, sequence;
  double seconds = 0;  // of a step
  std::string costs;   // instead of seconds: a cost table, of which every row is a measurement
  SourceRange where;
};

/// E101: not a table of steps; E102: a bad number; E104: a column is missing, unknown or given twice.
Result<std::vector<MeasuredStep>> parse_measured_steps(const SourceFilePtr& file);

}  // namespace piper
