// `piper doctor`: what there is on this machine, or on all hosts of a job, and what would not work.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace piper {

struct DoctorCommand {
  std::vector<std::string> command_line = {};  // as it was typed
  std::string hosts;                           // a file for the launcher; empty: only this host
  std::string interface;                       // of the network between them
  std::string launcher;
  std::string backend = "local";  // mpi: one of the processes that the launcher has started
  std::string format = "text";
  bool color = false;
};
int run(const DoctorCommand& command);

/// What only the program with libtorch knows. Empty: there is none, or not.
struct TrainingFacts {
  std::string pytorch, gpu, no_gpu, nccl;
};

/// Of this host; the fields are in docs/doctor.md. `training`: none: this program is built without libtorch.
nlohmann::ordered_json examine_host(const std::optional<TrainingFacts>& training);

/// Between the processes of two hosts.
struct MeasuredLink {
  std::string from, to;
  double latency = 0;    // seconds of a message of 64 bytes
  double bandwidth = 0;  // bytes per second of large ones
};

/// The whole answer, as text or JSON.
std::string print_doctor(const std::vector<nlohmann::ordered_json>& hosts, const std::vector<MeasuredLink>& links,
                         const std::string& format);

/// Starts a process on every host of the list, which examine their hosts and measure the links between them.
int launch_doctor(const DoctorCommand& command);

}  // namespace piper
