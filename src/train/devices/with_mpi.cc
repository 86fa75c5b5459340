#include "train/devices/join_mpi.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/mpi/mpi_world.h"
#include "comm/processes/launcher.h"

namespace piper {

Result<std::unique_ptr<World>> join_mpi(std::chrono::milliseconds timeout) {
  try {
    auto world = std::make_unique<MpiWorld>(timeout);
    const int launched = launched_ranks().value_or(1);
    if (launched > world->ranks())
      return error(ErrorCode::E805, {},
                   fmt::format("the launcher has started {} processes, but each of them is alone", launched))
          .help(fmt::format("the launcher belongs to another MPI than this program, which has {}", world->library()))
          .help("use the mpirun of that one, or piper launch, which finds it");
    return std::unique_ptr<World>(std::move(world));
  } catch (const NobodyCame& problem) {
    const std::vector<std::string> stopped = Launcher().stopped();
    return error(ErrorCode::E805, {},
                 fmt::format("{} in {:.1f} s{}{}", problem.what(), 1e-3 * static_cast<double>(timeout.count()),
                             stopped.empty() ? "" : "; stopped on this host: ", fmt::join(stopped, ", ")))
        .help("check that all of them are alive and can reach each other; --timeout gives them more time");
  } catch (const CommunicationError& problem) {
    return error(ErrorCode::E805, {}, problem.what()).help("start the program with mpirun or piper launch");
  }
}

}  // namespace piper
