// Bytes between processes by MPI.
#pragma once

#include "comm/processes/wire.h"

namespace piper {

/// Of the thread that calls it; others may have initialised MPI.
std::unique_ptr<Wire> make_mpi_wire();

}  // namespace piper
