// Bytes between processes by MPI.
#pragma once

#include "comm/processes/transport.h"

namespace piper {

/// Of the thread that calls it; others may have initialised MPI.
std::unique_ptr<Transport> make_mpi_transport();

}  // namespace piper
