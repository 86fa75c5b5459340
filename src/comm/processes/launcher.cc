#include "comm/processes/launcher.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace piper {
namespace {

constexpr const char* launchers[] = {"mpirun",          "mpiexec",       "orterun",        "orted",
                                     "prterun",         "prted",         "mpirun.openmpi", "mpiexec.openmpi",
                                     "hydra_pmi_proxy", "mpiexec.hydra", "mpirun.mpich",   "mpiexec.mpich",
                                     "torchrun",        "pt_elastic",    own_launcher_name};
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

constexpr const char* rank_variables[] = {number_variable, "OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "SLURM_PROCID"};

/// The rank of a process, from its environment; empty: it has none, or belongs to somebody else.
std::string rank_in_environment(int process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/environ");
  std::vector<std::string> entries;
  for (std::string entry; std::getline(in, entry, '\0');) entries.push_back(entry);
  for (const std::string variable : rank_variables)
    for (const std::string& entry : entries)
      if (entry.starts_with(variable + "=")) return entry.substr(variable.size() + 1);
  return "";
}

std::vector<int> children_of(int process) {
  std::vector<int> out;
  std::error_code gone;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", gone)) {
    std::ifstream children(thread.path() / "children");
    for (int child = 0; children >> child;) out.push_back(child);
  }
  return out;
}

}  // namespace

std::optional<int> launched_rank() {
  for (const char* variable : rank_variables)
    if (const char* value = std::getenv(variable)) return std::atoi(value);
  return {};
}

std::vector<std::string> Launcher::stopped() const {
  std::vector<std::string> out;
  if (process_ == 0) return out;
  for (const int child : children_of(process_))
    if (is_stopped(child)) {
      const std::string rank = rank_in_environment(child), process = "process " + std::to_string(child);
      out.push_back(rank.empty() ? process : "rank " + rank + " (" + process + ")");
    }
  return out;
}

bool Launcher::first_here() const {
  std::vector<int> children = children_of(process_);
  std::erase_if(children, is_stopped);
  return children.empty() || *std::min_element(children.begin(), children.end()) == getpid();
}

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
