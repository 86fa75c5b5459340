#include "comm/processes/launcher.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

namespace piper {
namespace {

constexpr const char* launchers[] = {"mpirun",          "mpiexec",       "orterun",        "orted",
                                     "prterun",         "prted",         "mpirun.openmpi", "mpiexec.openmpi",
                                     "hydra_pmi_proxy", "mpiexec.hydra", "mpirun.mpich",   "mpiexec.mpich",
                                     "torchrun",        "pt_elastic"};
constexpr size_t longest_name = 15;  // that the kernel keeps

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string out;
  std::getline(in, out);
  return out;
}

bool is_launcher(int process) {
  const std::string name = first_line("/proc/" + std::to_string(process) + "/comm");
  return std::any_of(std::begin(launchers), std::end(launchers),
                     [&](const std::string& known) { return name == known.substr(0, longest_name); });
}

/// Somebody has sent it SIGSTOP.
bool is_stopped(int process) {
  const std::string status = first_line("/proc/" + std::to_string(process) + "/stat");
  const size_t name_end = status.rfind(')');
  return name_end != std::string::npos && status.compare(name_end, 3, ") T") == 0;
}

}  // namespace

Launcher::Launcher() : process_(is_launcher(getppid()) ? getppid() : 0) {}

bool Launcher::gone() const {
  return process_ != 0 && getppid() != process_;
}

void Launcher::end(bool also_running) const {
  if (process_ == 0 || gone()) return;
  const bool stopped = is_stopped(process_);
  if (!stopped && !also_running) return;
  if (!stopped) {  // it ends what it has started, this process too
    kill(process_, SIGTERM);
    for (int i = 0; i < 20 && !gone(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (!gone()) kill(process_, SIGKILL);
}

}  // namespace piper
