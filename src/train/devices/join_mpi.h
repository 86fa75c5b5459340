// Where a job in several processes begins.
#pragma once

#include <chrono>
#include <memory>

#include "base/result.h"
#include "comm/world.h"

namespace piper {

/// This process among those that the launcher of MPI has started. E805: they cannot be joined, or somebody does not
/// come while `timeout` lasts, and MPI keeps waiting: then the process should end. E806: built without MPI.
Result<std::unique_ptr<World>> join_mpi(std::chrono::milliseconds timeout);

}  // namespace piper
