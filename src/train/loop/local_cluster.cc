#include "train/loop/local_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "comm/local/local_world.h"
#include "train/loop/profile.h"

namespace piper {
namespace {

/// The median time of a message of so many bytes.
double message_seconds(Communicator& sender, Communicator& receiver, size_t bytes, int64_t& number) {
  constexpr int repetitions = 21;
  std::vector<std::byte> out(bytes), in(bytes);
  std::vector<double> seconds;
  std::thread other([&] {
    for (int i = 0; i < repetitions; ++i) receiver.receive(sender.device(), number + i, in);
  });
  for (int i = 0; i < repetitions; ++i) {
    const Nanoseconds start = now();
    sender.send(receiver.device(), number + i, out);
    seconds.push_back(static_cast<double>(now() - start) * 1e-9);
  }
  other.join();
  number += repetitions;
  return median(std::move(seconds));
}

}  // namespace

LocalLink measure_local_link() {
  const auto world = make_local_world(2);
  int64_t number = 0;
  constexpr size_t large = 16u << 20;
  message_seconds(*world[0], *world[1], large, number);  // touches the memory
  LocalLink link;
  link.latency = message_seconds(*world[0], *world[1], 64, number);
  const double seconds = message_seconds(*world[0], *world[1], large, number);
  link.bandwidth = static_cast<double>(large) / std::max(seconds - link.latency, 1e-9);
  return link;
}

std::string local_cluster_text(const LocalLink& link) {
  return fmt::format(
      "# Threads of one process, as `piper profile` measured them.\n"
      "[cluster]\nname = \"local\"\n\n"
      "[device.thread]\nlaunch = \"0us\"\nissue = \"0.2us\"\n\n"
      "[[nodes]]\ndevice = \"thread\"\n\n"
      "[[links]]\nname = \"memory\"\nlatency = \"{:.3f}us\"\nbandwidth = \"{:.0f}MB/s\"\n",
      link.latency * 1e6, link.bandwidth * 1e-6);
}

void add_update_costs(CostTable& costs, const Plan& plan, const std::vector<DeviceRun*>& devices) {
  std::map<std::string, std::vector<double>> seen;
  for (const DeviceRun* device : devices) {
    const FlightRecorder& recorder = device->recorder();
    const auto& ops = device->program().ops;
    for (size_t i = 0; i < ops.size(); ++i)
      if (ops[i].kind == OpKind::Update)
        for (int64_t step = recorder.oldest(); step <= recorder.step(); ++step) {
          const OpTimes times = recorder.times(step, static_cast<int>(i));
          seen[plan.names[static_cast<size_t>(ops[i].label.name)]].push_back(
              static_cast<double>(times.ended - times.started) * 1e-9);
        }
  }
  for (auto& [name, seconds] : seen) costs.seconds[{name, std::nullopt, 0}] = median(std::move(seconds));
}

}  // namespace piper
