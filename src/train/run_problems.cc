#include "train/run_problems.h"

#include <fmt/format.h>

namespace piper {

Diagnostic as_diagnostic(const RunError& problem) {
  switch (problem.problem) {
    case RunProblem::Operation:
      return error(ErrorCode::E801, {}, problem.what())
          .help("the line of the schedule behind the operation stands in brackets; all other devices were stopped");
    case RunProblem::Stalled:
      return error(ErrorCode::E802, {}, problem.what())
          .help("look at the device that others wait for; --patience says how long to wait");
    case RunProblem::NotFinite:
      return error(ErrorCode::E803, {}, problem.what())
          .help("no weight was changed by this step")
          .help("lower the learning rate, set clip in [optimizer], or on_nan = \"skip\" in [run]");
    case RunProblem::Elsewhere:
      return error(ErrorCode::E801, {}, fmt::format("another process ended the job: {}", problem.what()))
          .help("that process says more");
  }
  internal_error("a problem of a run");
}

Diagnostic built_without_libtorch() {
  return error(ErrorCode::E804, {}, "this program was built without libtorch, so it cannot train")
      .help("make build installs libtorch and builds the whole program; the log of CMake says why it was not found");
}

}  // namespace piper
