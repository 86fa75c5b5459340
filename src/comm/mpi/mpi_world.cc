#include "comm/mpi/mpi_world.h"

#include <cstdlib>

#include "comm/mpi/mpi_transport.h"

namespace piper {

std::optional<int> launched_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return {};
}

MpiWorld::MpiWorld(std::optional<std::chrono::milliseconds> timeout) : ProcessWorld(make_mpi_transport, timeout) {}

}  // namespace piper
