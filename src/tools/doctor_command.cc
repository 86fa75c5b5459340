#include "tools/doctor_command.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/bytes.h"
#include "base/machine.h"
#include "base/text_table.h"
#include "base/time_text.h"
#include "base/usual_python.h"
#include "tools/commands.h"
#include "tools/host_list.h"
#include "tools/launch_command.h"
#include "train/memory_claims.h"

namespace piper {
namespace {

using nlohmann::ordered_json;

/// What a command prints, by lines; nothing: it failed.
std::vector<std::string> lines_of(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (!pipe) return {};
  std::string text;
  std::array<char, 4096> bytes{};
  while (const size_t count = std::fread(bytes.data(), 1, bytes.size(), pipe)) text.append(bytes.data(), count);
  if (pclose(pipe) != 0) return {};
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}
std::string first_line(const std::string& command) {
  const std::vector<std::string> lines = lines_of(command);
  return lines.empty() ? "" : lines[0];
}

/// What stands behind `name` and a separator, in a file of such lines.
std::string value_in(const std::string& file, const std::string& name, char separator) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find(separator);
    if (at == std::string::npos || line.substr(0, line.find_last_not_of(" \t", at - 1) + 1) != name) continue;
    const size_t begin = line.find_first_not_of(" \t\"", at + 1), end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? "" : line.substr(begin, end - begin + 1);
  }
  return "";
}

std::string this_host() {
  utsname names{};
  uname(&names);
  return names.nodename;
}

std::string system_text() {
  utsname names{};
  uname(&names);
  const std::string distribution = value_in("/etc/os-release", "PRETTY_NAME", '=');
  return fmt::format("{}{}Linux {}, {}", distribution, distribution.empty() ? "" : ", ", names.release, names.machine);
}

/// Ports that the system gives to who asks for any, and how many of them are free.
ordered_json ports_here() {
  ordered_json out;
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  std::set<int> used;
  for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(file);
    std::string line, number, address;
    for (std::getline(in, line); std::getline(in, line);) {
      std::istringstream words(line);
      words >> number >> address;
      const size_t colon = address.rfind(':');
      if (colon == std::string::npos) continue;
      const int port = static_cast<int>(std::strtol(address.c_str() + colon + 1, nullptr, 16));
      if (port >= first && port <= last) used.insert(port);
    }
  }
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  out["first"] = first;
  out["last"] = last;
  out["free"] = std::max(0, last - first + 1 - static_cast<int>(used.size()));
  out["can_listen"] = listener >= 0 && bind(listener, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 &&
                      listen(listener, 1) == 0;
  if (listener >= 0) close(listener);
  return out;
}

ordered_json memory_here(const std::string& host) {
  ordered_json out;
  std::istringstream total(value_in("/proc/meminfo", "MemTotal", ':'));
  int64_t kilobytes = 0;
  total >> kilobytes;
  out["bytes"] = kilobytes * 1024;
  out["left"] = ordered_json::array();
  for (const auto& [pool, bytes] : host_memory(host)) out["left"].push_back({{"of", pool}, {"bytes", bytes}});
  return out;
}

ordered_json versions_here(const std::optional<TrainingFacts>& training) {
  ordered_json out;
  out["piper"] = PIPER_VERSION;
  out["libtorch"] = training ? training->pytorch : "";
  const std::vector<std::string> python =
      lines_of(fmt::format("'{}' -c 'import sys, importlib.metadata as m\nprint(sys.version.split()[0])\n"
                           "try: print(m.version(\"torch\"))\nexcept m.PackageNotFoundError: print()'",
                           usual_python()));
  out["python"] = python.empty() ? "" : python[0];
  out["python_torch"] = python.size() < 2 ? "" : python[1];
  const char* compiler = std::getenv("CXX");
  out["compiler"] = first_line(fmt::format("'{}' --version", compiler && *compiler ? compiler : "g++"));
  out["launcher"] = first_line(fmt::format("'{}' --version", PIPER_LAUNCHER));
  out["nccl"] = training ? training->nccl : "";
  return out;
}

bool same_release(const std::string& a, const std::string& b) {
  return a.substr(0, a.find('+')) == b.substr(0, b.find('+'));
}

/// What a user would try in vain.
ordered_json refused_here(const ordered_json& report, const std::optional<TrainingFacts>& training) {
  ordered_json out = ordered_json::array();
  const auto refuse = [&](const char* what, const std::string& why, const char* help) {
    out.push_back({{"what", what}, {"why", why}, {"help", help}});
  };
  const ordered_json& versions = report["versions"];
  if (!training)
    refuse("piper train, profile, diff", "this program is built without libtorch",
           "scripts/setup --torch, then make build");
  if (training && training->gpu.empty()) refuse("--on cuda", training->no_gpu, "train with --on cpu");
  if (training && !training->gpu.empty() && training->nccl.empty())
    refuse("several GPUs", "this program is built without NCCL", "build where NCCL is installed");
  if (versions["launcher"] == "")
    refuse("piper launch", fmt::format("{} cannot be started", PIPER_LAUNCHER),
           "install Open MPI (Debian: openmpi-bin), or start processes with torchrun or Slurm");
  if (versions["python"] == "")
    refuse("piper data prepare, --kernels inductor", fmt::format("{} cannot be started", usual_python()),
           "install Python 3, or name it with PIPER_PYTHON");
  else if (versions["python_torch"] == "")
    refuse("--kernels inductor, the Python package", fmt::format("{} has no PyTorch", usual_python()),
           "scripts/setup --peers, or name another Python with PIPER_PYTHON");
  else if (training && !same_release(versions["python_torch"], versions["libtorch"]))
    refuse("--kernels inductor, the Python package",
           fmt::format("Python has PyTorch {}, the program {}", std::string(versions["python_torch"]),
                       std::string(versions["libtorch"])),
           "use the same version, or build Piper with that one");
  if (versions["compiler"] == "")
    refuse("--kernels inductor", "there is no C++ compiler", "install g++, or name one with CXX");
  if (!report["ports"]["can_listen"] || report["ports"]["free"] == 0)
    refuse("several processes", "no port can be opened", "look at the limits of this container");
  return out;
}

/// Versions that processes of one job must share.
std::vector<std::string> differences(const std::vector<ordered_json>& hosts) {
  std::vector<std::string> out;
  for (const char* what : {"piper", "libtorch", "launcher", "nccl"})
    for (const ordered_json& host : hosts)
      if (host["versions"][what] != hosts[0]["versions"][what])
        out.push_back(fmt::format("{}: \"{}\" on {}, \"{}\" on {}", what, std::string(hosts[0]["versions"][what]),
                                  std::string(hosts[0]["host"]), std::string(host["versions"][what]),
                                  std::string(host["host"])));
  return out;
}

std::string or_none(const ordered_json& text) {
  const std::string out = text;
  return out.empty() ? "none" : out;
}

std::string print_host(const ordered_json& report) {
  const ordered_json& versions = report["versions"];
  std::string memory = human_bytes(report["memory"]["bytes"].get<int64_t>());
  for (const ordered_json& pool : report["memory"]["left"])
    memory += fmt::format("; {} left in {}", human_bytes(pool["bytes"].get<int64_t>()), std::string(pool["of"]));
  std::string out = fmt::format("{}: piper {}, {}\n", std::string(report["host"]), std::string(versions["piper"]),
                                std::string(report["system"]));
  const auto line = [&](const char* name, const std::string& text) { out += fmt::format("  {:<14}{}\n", name, text); };
  line("processor", or_none(report["processor"]));
  line("cores", fmt::format("{:.4g}", report["cores"].get<double>()));
  line("memory", memory);
  line("GPU", or_none(report["gpu"]));
  line("PyTorch", or_none(versions["libtorch"]));
  line("Python",
       or_none(versions["python"]) + (versions["python_torch"] == ""
                                          ? ""
                                          : fmt::format(" with PyTorch {}", std::string(versions["python_torch"]))));
  line("compiler", or_none(versions["compiler"]));
  line("MPI launcher", or_none(versions["launcher"]));
  line("NCCL", or_none(versions["nccl"]));
  line("ports", fmt::format("{} to {}, {} free", report["ports"]["first"].get<int>(),
                            report["ports"]["last"].get<int>(), report["ports"]["free"].get<int>()));
  for (const ordered_json& refused : report["refused"])
    out += fmt::format("  would not work: {}: {}\n    help: {}\n", std::string(refused["what"]),
                       std::string(refused["why"]), std::string(refused["help"]));
  if (report["refused"].empty()) out += "  everything would work\n";
  return out;
}

}  // namespace

ordered_json examine_host(const std::optional<TrainingFacts>& training) {
  ordered_json out;
  out["host"] = this_host();
  out["system"] = system_text();
  out["processor"] = value_in("/proc/cpuinfo", "model name", ':');
  out["cores"] = usable_cores();
  out["memory"] = memory_here(this_host());
  out["gpu"] = training ? training->gpu : "";
  out["versions"] = versions_here(training);
  out["ports"] = ports_here();
  out["refused"] = refused_here(out, training);
  return out;
}

std::string print_doctor(const std::vector<ordered_json>& hosts, const std::vector<MeasuredLink>& links,
                         const std::string& format) {
  if (format == "json") {
    ordered_json out = {{"version", 1}, {"hosts", hosts}, {"links", ordered_json::array()}};
    for (const MeasuredLink& link : links)
      out["links"].push_back({{"from", link.from},
                              {"to", link.to},
                              {"latency_seconds", link.latency},
                              {"bytes_per_second", link.bandwidth}});
    out["differences"] = differences(hosts);
    return out.dump(2) + "\n";
  }
  std::string out;
  for (const ordered_json& host : hosts) out += print_host(host);
  for (const std::string& difference : differences(hosts))
    out += fmt::format("would not work: one job on all hosts: {}\n", difference);
  if (links.empty()) return out;
  TextTable table({"link", "latency", "bandwidth"});
  for (const MeasuredLink& link : links)
    table.add({fmt::format("{} - {}", link.from, link.to), human_seconds(link.latency),
               human_bytes(static_cast<int64_t>(link.bandwidth)) + "/s"});
  return out + table.print();
}

int launch_doctor(const DoctorCommand& command) {
  auto hosts = read_hosts(command.hosts);
  if (!hosts) return report_text(hosts.error(), command.color);
  LaunchCommand launch;
  std::set<std::string> names;  // a host may stand there once for every process
  for (const Host& host : *hosts) names.insert(host.name);
  launch.processes = static_cast<int>(names.size());
  launch.hosts = command.hosts;
  launch.interface = command.interface;
  launch.launcher = command.launcher;
  launch.starts = Started::Doctor;
  launch.train = {"--format", command.format};
  launch.color = command.color;
  return run(launch);
}

}  // namespace piper
