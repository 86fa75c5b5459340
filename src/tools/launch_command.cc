#include "tools/launch_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/read_file.h"
#include "tools/become.h"
#include "tools/commands.h"
#include "tools/supervise.h"

namespace piper {
namespace {

Diagnostic no_launcher(const std::string& launcher, const std::string& why) {
  return error(ErrorCode::E805, {}, fmt::format("the launcher \"{}\" cannot be started: {}", launcher, why))
      .help("install Open MPI (Debian: openmpi-bin), or name another with --launcher");
}

Diagnostic did_not_begin(const LaunchCommand& command) {
  return error(ErrorCode::E805, {}, "the processes of the job have not begun; the launcher says why, above")
      .help(command.hosts.empty()
                ? ""
                : fmt::format("look at the names in \"{}\": `ssh HOST true` must work for each of them, "
                              "and the program must be at the same place on all",
                              command.hosts))
      .help("the line that was started stands at the top");
}

/// What it says about itself.
Result<std::string> version_of(const std::string& launcher) {
  std::string out;
  std::FILE* pipe = popen(fmt::format("'{}' --version 2>&1", launcher).c_str(), "r");
  if (!pipe) return no_launcher(launcher, std::strerror(errno));
  std::array<char, 4096> bytes{};
  while (const size_t count = std::fread(bytes.data(), 1, bytes.size(), pipe)) out.append(bytes.data(), count);
  if (pclose(pipe) != 0) return no_launcher(launcher, out.substr(0, out.find('\n')));
  return out;
}

/// The command line for Open MPI, or for those with MPICH's launcher.
std::vector<std::string> launch_line(const LaunchCommand& command, const std::string& launcher, bool open_mpi) {
  std::vector<std::string> line = {launcher, "-n", fmt::format("{}", command.processes)};
  if (open_mpi) {
    line.insert(line.end(), {"--bind-to", "none"});                   // threads of a process may use all cores
    if (command.hosts.empty()) line.emplace_back("--oversubscribe");  // also with fewer cores than processes
    if (geteuid() == 0) line.emplace_back("--allow-run-as-root");
    line.insert(line.end(), {"-x", supervised_variable});
  }
  if (!command.hosts.empty()) line.insert(line.end(), {open_mpi ? "--hostfile" : "-f", command.hosts});
  line.insert(line.end(), {own_program().string(), "train"});
  line.insert(line.end(), command.train.begin(), command.train.end());
  line.insert(line.end(), {"--backend", "mpi"});
  return line;
}

}  // namespace

int run(const LaunchCommand& command) {
  const std::string launcher = command.launcher.empty() ? PIPER_LAUNCHER : command.launcher;
  if (!command.hosts.empty())
    if (auto hosts = read_file(command.hosts, "the list of hosts"); !hosts)
      return report_text(hosts.error(), command.color);
  auto version = version_of(launcher);
  if (!version) return report_text(version.error(), command.color);
  const std::vector<std::string> line = launch_line(command, launcher, version->find("HYDRA") == std::string::npos);
  fmt::print(stderr, "{}\n", fmt::join(line, " "));
  std::fflush(stderr);
  const Supervised job = supervise(line);
  if (job.code != fine && job.code != usage && !job.began) report_text(did_not_begin(command), command.color);
  return job.code;
}

}  // namespace piper
