// Starting a job of several processes.
#pragma once

#include <string>
#include <vector>

namespace piper {

/// What the processes are: of a training, or one on each host for `piper doctor`.
enum class Started { Training, Doctor };

struct LaunchCommand {
  int processes = 0;
  std::string hosts;               // a file for the launcher; empty: all on this host
  std::string interface;           // of the network between them; empty: all that there are
  std::string backend = "mpi";     // what carries messages; tcp: between processes that this program starts
  std::string launcher;            // empty: the mpirun of the MPI that this program was built with; tcp: ssh
  int spares = 0;                  // processes that take the places of those that are lost
  int restarts = 0;                // after failures, from the newest checkpoint
  std::vector<std::string> train;  // what `piper train` gets, or `piper doctor`
  Started starts = Started::Training;
  bool color = false;
};
/// Starts the launcher and sees to its end.
int run(const LaunchCommand& command);

}  // namespace piper
