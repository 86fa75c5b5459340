// What can go wrong with a run, besides its input.
#pragma once

#include "base/result.h"
#include "runtime/stream/failure.h"

namespace piper {

/// E801, E802 or E803.
Diagnostic as_diagnostic(const RunError& problem);

/// E804: said by a program that cannot train.
Diagnostic built_without_libtorch();

/// E805: `what` says why the processes of a job cannot train together.
Diagnostic do_not_fit(const std::string& what);
/// E806.
Diagnostic built_without_mpi();
/// E807.
Diagnostic built_without_gpus();
Diagnostic built_without_nccl();

}  // namespace piper
