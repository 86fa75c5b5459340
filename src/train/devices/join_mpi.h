// Where a job in several processes begins.
#pragma once

#include <memory>

#include "base/result.h"
#include "comm/world.h"

namespace piper {

/// This process among those that the launcher of MPI has started. E805: they cannot be joined; E806: built without MPI.
Result<std::unique_ptr<World>> join_mpi();

}  // namespace piper
