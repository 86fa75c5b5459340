// The processes of this test program.
#pragma once

#include "comm/mpi/mpi_world.h"

namespace piper {

MpiWorld& processes();

}  // namespace piper
