#include "tools/doctor_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/timeouts.h"
#include "comm/processes/launcher.h"
#include "comm/world.h"
#include "tools/commands.h"
#include "tools/supervise.h"
#include "tools/training/load_training.h"
#include "train/devices/join_mpi.h"
#include "train/devices/use_gpu.h"
#include "train/loop/libtorch_version.h"
#include "train/loop/profile.h"

namespace piper {
namespace {

using nlohmann::ordered_json;

TrainingFacts facts_here() {
  TrainingFacts out;
  out.pytorch = libtorch_version;
  if (auto gpu = use_gpu({}); gpu)
    out.gpu = gpu_architecture();
  else
    out.no_gpu = gpu.error().message;
  out.nccl = joins_gpus();
  return out;
}

/// Half the time of messages there and back; device a asks, device b answers, all others go on.
double message_seconds(Communicator& here, int a, int b, size_t bytes, int64_t& sequence) {
  constexpr int repetitions = 11;
  std::vector<std::byte> data(bytes);
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i, sequence += 2) {
    const double start = seconds_now();
    if (here.device() == a) {
      here.send(b, sequence, data);
      here.receive(b, sequence + 1, data);
      seconds.push_back((seconds_now() - start) / 2);
    } else if (here.device() == b) {
      here.receive(a, sequence, data);
      here.send(a, sequence + 1, data);
    }
  }
  return seconds.empty() ? 0 : median(std::move(seconds));
}

/// The links of this process to those of higher ranks, a pair at a time.
std::vector<MeasuredLink> measure_links(Communicator& here, const std::vector<std::string>& hosts) {
  constexpr size_t small = 64, large = 4 << 20;
  const int count = static_cast<int>(hosts.size());
  std::vector<MeasuredLink> out;
  int64_t sequence = 0;
  for (int a = 0; a < count; ++a)
    for (int b = a + 1; b < count; ++b) {
      message_seconds(here, a, b, large, sequence);  // connects, and touches the memory
      const double latency = message_seconds(here, a, b, small, sequence);
      const double seconds = message_seconds(here, a, b, large, sequence);
      if (here.device() != a) continue;
      out.push_back({hosts[static_cast<size_t>(a)], hosts[static_cast<size_t>(b)], latency,
                     static_cast<double>(large) / std::max(seconds - latency, 1e-9)});
    }
  return out;
}

ordered_json as_json(const std::vector<MeasuredLink>& links) {
  ordered_json out = ordered_json::array();
  for (const MeasuredLink& link : links) out.push_back({link.from, link.to, link.latency, link.bandwidth});
  return out;
}

/// Every process examines its host; rank 0 prints what all have found.
int examine_together(World& world, const std::string& format, std::chrono::milliseconds limit) {
  const ordered_json mine = examine_host(facts_here());
  const auto reports = world.gather(mine.dump(), limit);
  std::vector<ordered_json> hosts;
  std::vector<std::string> names;
  for (const auto& report : reports) {
    if (!report) throw CommunicationError("a host has not answered in time");
    hosts.push_back(ordered_json::parse(*report));
    names.push_back(hosts.back()["host"]);
  }
  names = ordered_json::parse(world.broadcast(ordered_json(names).dump(), limit)).get<std::vector<std::string>>();
  const auto communicators = world.make(world.ranks(), limit);
  for (int a = 0; a < world.ranks(); ++a)
    for (int b = 0; b < world.ranks(); ++b)
      if (a != b) communicators[0]->connect(a, b);
  std::vector<MeasuredLink> links;
  for (const auto& measured : world.gather(as_json(measure_links(*communicators[0], names)).dump(), limit)) {
    if (!measured) throw CommunicationError("a host has not measured its links in time");
    for (const ordered_json& link : ordered_json::parse(*measured))
      links.push_back({link[0], link[1], link[2], link[3]});
  }
  if (world.rank() == 0) put(print_doctor(hosts, links, format));
  return fine;
}

}  // namespace

int run(const DoctorCommand& command) {
  if (!command.hosts.empty()) return launch_doctor(command);
  if (command.backend == "local") {
    put(print_doctor({examine_host(facts_here())}, {}, command.format));
    return fine;
  }
  say_begin();
  const std::chrono::milliseconds limit = std::chrono::minutes(2);
  say_joining(launched_rank().value_or(0));
  auto world = join_mpi(limit);
  if (!world) return report_text(world.error(), command.color);
  try {
    const int code = examine_together(**world, command.format, limit);
    std::fflush(stdout);
    if ((*world)->rank() == 0) say_end(code);
    return code_for_launcher(code);
  } catch (const CommunicationError& problem) {
    report_text(error(ErrorCode::E805, {}, problem.what()), command.color);
    say_end(run_failed);
    (*world)->end_everywhere(run_failed);
  }
  return run_failed;
}

}  // namespace piper
