#include "tools/launch_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "base/timeouts.h"
#include "tools/become.h"
#include "tools/commands.h"
#include "tools/host_list.h"
#include "tools/option_in.h"
#include "tools/process_places.h"
#include "tools/restart.h"
#include "tools/start_processes.h"
#include "tools/supervise.h"
#include "tools/train_command.h"

namespace piper {
namespace {

Diagnostic no_launcher(const std::string& launcher, const std::string& why) {
  return error(ErrorCode::E805, {}, fmt::format("the launcher \"{}\" cannot be started: {}", launcher, why))
      .help("install Open MPI (Debian: openmpi-bin), or name another with --launcher");
}

Diagnostic did_not_begin(const LaunchCommand& command, const std::string& what) {
  return error(ErrorCode::E805, {}, what)
      .help(command.hosts.empty()
                ? ""
                : fmt::format("look at the names in \"{}\": `ssh HOST true` must work for each of them, "
                              "and the program must be at the same place on all",
                              command.hosts))
      .help("the line that was started stands at the top");
}

/// The ranks of the job, of which none was seen.
std::string never_appeared(int processes, double limit) {
  const std::string who = processes == 1 ? "rank 0" : fmt::format("none of ranks 0 to {}", processes - 1);
  return fmt::format("the launcher has started nothing: {} {} within 30 x timeout ({:g} s)", who,
                     processes == 1 ? "did not begin" : "began", limit);
}

Diagnostic not_a_launcher(const std::string& launcher, const std::string& version) {
  return error(ErrorCode::E805, {},
               fmt::format("\"{}\" is no launcher of Open MPI or MPICH: it calls itself \"{}\"", launcher,
                           version.substr(0, version.find('\n'))))
      .help("name an mpirun with --launcher, or leave it out: then it is the one of this build's MPI");
}

/// Only the job knows that it is done.
Diagnostic job_said_nothing(const std::string& how) {
  return error(ErrorCode::E805, {}, fmt::format("the launcher {} before the job has ended", how))
      .help(
          "if nothing above says why, somebody has ended it: a person, a scheduler, or the system when it was short of "
          "memory (`dmesg`)");
}

/// What `piper train` will take for its timeout.
double timeout_in(const std::vector<std::string>& train) {
  const std::string text = option_in(train, "--timeout");
  double timeout = TrainCommand{}.timeout;
  std::from_chars(text.data(), text.data() + text.size(), timeout);
  return timeout;
}

/// What it says about itself.
Result<std::string> version_of(const std::string& launcher, double limit) {
  std::string out;
  std::FILE* pipe = popen(fmt::format("'{}' --version 2>&1", launcher).c_str(), "r");
  if (!pipe) return no_launcher(launcher, std::strerror(errno));
  std::array<char, 4096> bytes{};
  pollfd readable = {fileno(pipe), POLLIN, 0};
  bool answers = true;
  while ((answers = poll(&readable, 1, static_cast<int>(std::min(limit * 1000, 1e9))) > 0)) {
    const ssize_t count = read(readable.fd, bytes.data(), bytes.size());
    if (count <= 0) break;
    out.append(bytes.data(), static_cast<size_t>(count));
  }
  if (!answers) kill_descendants();
  const int status = pclose(pipe);
  if (!answers) return no_launcher(launcher, fmt::format("`--version` does not end within {:g} s", limit));
  if (status != 0) return no_launcher(launcher, out.substr(0, out.find('\n')));
  return out;
}

/// What Open MPI's launcher is told.
std::vector<std::string> open_mpi_options(const LaunchCommand& command) {
  std::vector<std::string> options = {"--bind-to", "none"};            // threads of a process may use all cores
  if (command.hosts.empty()) options.emplace_back("--oversubscribe");  // also with fewer cores than processes
  if (geteuid() == 0) options.emplace_back("--allow-run-as-root");
  options.insert(options.end(), {"-x", supervised_variable});
  if (!command.hosts.empty()) options.insert(options.end(), {"--hostfile", command.hosts});
  if (command.starts == Started::Doctor) options.insert(options.end(), {"--map-by", "node"});
  if (!command.interface.empty())
    for (const char* network : {"btl_tcp_if_include", "oob_tcp_if_include"})  // of messages, of the launcher's own
      options.insert(options.end(), {"--mca", network, command.interface});
  return options;
}

/// MPICH's. It would kill all when one process ends; they find out by themselves, and leave a record.
std::vector<std::string> mpich_options(const LaunchCommand& command, const std::vector<Host>& hosts) {
  std::vector<std::string> options = {"-disable-auto-cleanup"};
  if (!command.interface.empty()) options.insert(options.end(), {"-iface", command.interface});
  if (command.starts == Started::Doctor) options.insert(options.end(), {"-ppn", "1"});
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name + (host.processes.empty() ? "" : ":" + host.processes));
  if (!names.empty()) options.insert(options.end(), {"-hosts", fmt::format("{}", fmt::join(names, ","))});
  return options;
}

/// Of a job that has failed, and some of whose processes have joined each other.
std::string missing_ranks(int processes, const Supervised& job) {
  std::vector<std::string> out;
  if (job.code == fine || job.code >= by_signal || job.joining.empty()) return "";
  for (int rank = 0; rank < processes; ++rank)
    if (!job.joining.contains(rank)) out.push_back(fmt::format("rank {}", rank));
  return fmt::format("{}", fmt::join(out, ", "));
}

/// What each process is.
std::vector<std::string> process_line(const LaunchCommand& command) {
  std::vector<std::string> line = {own_program().string(), command.starts == Started::Training ? "train" : "doctor"};
  line.insert(line.end(), command.train.begin(), command.train.end());
  if (command.spares > 0) line.insert(line.end(), {"--on-fault", "replace"});
  line.insert(line.end(), {"--backend", command.backend});
  return line;
}

/// What starts processes.
struct Launcher {
  std::string program;  // of MPI; empty: this one
  bool open_mpi = true;
  double limit = 0;          // seconds for the first process to begin
  std::string address = {};  // without MPI: of this host, for processes on others
};

/// At which processes on all of these hosts find this one.
Result<std::string> address_among(const std::vector<Host>& hosts) {
  for (const Host& host : hosts)
    if (!is_this_host(host.name)) return address_for(host.name);
  return std::string("127.0.0.1");
}

Result<Launcher> launcher_of_mpi(const std::string& named, double limit) {
  const std::string program = named.empty() ? PIPER_LAUNCHER : named;
  PIPER_TRY(const std::string version, version_of(program, limit));
  const auto calls_itself = [&](std::string_view name) { return version.find(name) != std::string::npos; };
  const bool open_mpi = calls_itself("Open MPI") || calls_itself("OpenRTE") || calls_itself("PRRTE");
  if (!open_mpi && !calls_itself("HYDRA")) return not_a_launcher(program, version);
  return Launcher{program, open_mpi, limit};
}

Supervised start(const LaunchCommand& command, const std::vector<Host>& hosts, const Launcher& launcher,
                 const std::function<void(const Supervised&)>& goes_on = nullptr) {
  std::vector<std::string> line = process_line(command);
  if (launcher.program.empty()) {
    fmt::print(stderr, "{}  ({} processes{})\n", fmt::join(line, " "), command.processes,
               command.spares > 0 ? fmt::format(" and {} spare", command.spares) : "");
    std::fflush(stderr);
    const auto limit = std::chrono::milliseconds(static_cast<int64_t>(1e3 * launcher.limit));
    StartedProcesses processes{.line = line,
                               .count = command.processes,
                               .spares = command.spares,
                               .to_come = limit,
                               .to_come_again = limit / 30};
    if (!hosts.empty()) {
      processes.hosts = *places_on(hosts, command.processes, command.spares);
      processes.address = launcher.address;
      if (!command.launcher.empty()) processes.shell = command.launcher;
    }
    return supervise([&] { return start_processes(processes); }, launcher.limit, goes_on);
  }
  const auto options = launcher.open_mpi ? open_mpi_options(command) : mpich_options(command, hosts);
  line.insert(line.begin(), options.begin(), options.end());
  line.insert(line.begin(), {launcher.program, "-n", fmt::format("{}", command.processes)});
  fmt::print(stderr, "{}\n", fmt::join(line, " "));
  std::fflush(stderr);
  return supervise([&] { return become_launcher(line); }, launcher.limit, goes_on);
}

/// Starts the job again while it fails, so often as is wanted. How it ended.
Supervised start_with_restarts(const LaunchCommand& command, const std::vector<Host>& hosts, const Launcher& launcher) {
  Supervised job = start(command, hosts, launcher);
  LaunchCommand again = command;
  std::set<std::string> blamed;
  for (int restart = 1; restart <= command.restarts && job.code == run_failed && !job.asked && job.began; ++restart) {
    const Supervised failed = std::move(job);
    blamed.insert(failed.blamed.begin(), failed.blamed.end());
    again.train = resuming(again.train);
    const std::vector<Host> left = without(hosts, blamed, command.processes);
    std::optional<ListOfHosts> list;
    again.hosts = left.size() == hosts.size() ? command.hosts : list.emplace(left).path();
    job = start(again, left, launcher, [&](const Supervised& going_on) {
      fmt::print(stderr, "{}", describe_restart(restart, command.restarts, failed, going_on));
    });
  }
  return job;
}

}  // namespace

int run(const LaunchCommand& command) {
  std::vector<Host> hosts;
  if (!command.hosts.empty()) {
    auto read = read_hosts(command.hosts);
    if (!read) return report_text(read.error(), command.color);
    hosts = std::move(*read);
  }
  const double limit = timeouts_of(timeout_in(command.train)).first;
  Launcher launcher{.program = "", .limit = limit};
  if (command.backend == "mpi") {
    auto found = launcher_of_mpi(command.launcher, limit);
    if (!found) return report_text(found.error(), command.color);
    launcher = *found;
  } else if (!hosts.empty()) {
    if (auto places = places_on(hosts, command.processes, command.spares); !places)
      return report_text(places.error(), command.color);
    auto address = address_among(hosts);
    if (!address) return report_text(address.error(), command.color);
    launcher.address = std::move(*address);
  }
  if (command.restarts > 0 && !saves_checkpoints(command.train))
    return report_text(error(ErrorCode::E105, {}, "--restarts needs checkpoints to resume from")
                           .help("give `piper train` --checkpoints DIR, or checkpoints in [run]"),
                       command.color);
  const Supervised job = start_with_restarts(command, hosts, launcher);
  if (job.code == run_failed && job.began) fmt::print(stderr, "{}", newest_checkpoint(command.train));
  if (const std::string missing = missing_ranks(command.processes, job); !missing.empty())
    fmt::print(stderr, "piper: not come so far as to join the others: {}\n", missing);
  if (job.late) report_text(did_not_begin(command, never_appeared(command.processes, limit)), command.color);
  if (job.launcher.empty() || job.code == usage) return job.code;  // all is said
  if (!job.began)
    report_text(did_not_begin(command, "the processes of the job have not begun; the launcher says why, above"),
                command.color);
  else if (job.code == run_failed)
    report_text(job_said_nothing(job.launcher), command.color);
  return job.code;
}

}  // namespace piper
