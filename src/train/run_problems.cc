#include "train/run_problems.h"

#include <fmt/format.h>

namespace piper {

Diagnostic as_diagnostic(const RunError& problem) {
  switch (problem.problem) {
    case RunProblem::Operation:
      return error(ErrorCode::E801, {}, problem.what())
          .help("the line of the schedule behind the operation stands in brackets; all other devices were stopped");
    case RunProblem::Memory:
      return error(ErrorCode::E801, {}, problem.what())
          .help("what the plan takes was there when the run began: other programs, or the memory of libraries, took it")
          .help("recompute, zero and smaller slices of the batch need less: piper check shows which helps");
    case RunProblem::Stalled:
      return error(ErrorCode::E802, {}, problem.what())
          .help("look at the device that others wait for; --timeout gives everything more time");
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

Diagnostic do_not_fit(const std::string& what) {
  return error(ErrorCode::E805, {}, "the processes of the job do not fit together:" + what)
      .help("start the same build with the same configuration on every host");
}

Diagnostic built_without_mpi() {
  return error(ErrorCode::E806, {}, "this program was built without MPI, so all devices must be in one process")
      .help("--backend local needs none; make build installs Open MPI and builds with it");
}

Diagnostic built_without_gpus() {
  return error(ErrorCode::E807, {}, "this program was built without what GPUs need, so it cannot train there")
      .help("--on cpu (in Python: on=\"cpu\") trains on the CPU")
      .help("GPUs need nvcc and a PyTorch with CUDA when the program is built: docs/gpu.md");
}

Diagnostic built_without_nccl() {
  return error(ErrorCode::E807, {}, "this program was built without NCCL, so it cannot train on several GPUs")
      .help("without --backend all devices share the GPU of this machine")
      .help("NCCL's header and library come with PyTorch: docs/gpu.md says how they are found");
}

}  // namespace piper
