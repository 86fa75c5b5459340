// A table of measured steps and kernels: CSV, described in docs/cluster.md.
//
//   set,model,schedule,batch,seconds
//   one node,models/gpt.toml,schedules/dp8.piper,64,0.4064
//
//   dtype,product,bytes,seconds
//   bfloat16,4096x11008x4096,,5.2e-4
//   bfloat16,,268435456,7.1e-5
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/operator_work.h"
#include "model/size.h"

namespace piper {

/// One launch by itself: a matrix product, or an operator that is bound by memory.
struct MeasuredKernel {
  DType dtype = DType::BFloat16;
  std::optional<MatrixProduct> product;
  int64_t bytes = 0;  // otherwise: read and written
};

/// A row: what `piper simulate` would be asked, and what was measured instead.
struct MeasuredStep {
  std::string set;              // what its error is reported with; every set weighs the same
  std::string model, schedule;  // as on the command line; files are found from the folder of the table
  std::optional<int64_t> batch, sequence;
  std::optional<MeasuredKernel> kernel;  // instead of model and schedule
  double seconds = 0;                    // of a step or a kernel
  std::string costs;   // instead of seconds: a cost table, of which every row is a measurement
  SourceRange where;
};

/// E101: not a table of steps; E102: a bad number, shape or dtype; E104: a column is missing, unknown or given twice.
Result<std::vector<MeasuredStep>> parse_measured_steps(const SourceFilePtr& file);

}  // namespace piper
