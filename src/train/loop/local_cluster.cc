#include "train/loop/local_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
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

LocalLink measure_link_on(Processor& processor) {
  constexpr int repetitions = 21;
  constexpr int64_t sizes[] = {64, 64 << 20};
  constexpr int messages = 2 * repetitions;
  const auto world = processor.make_world(2, {});
  const std::unique_ptr<DeviceSide> clock = processor.make_side(messages);
  const std::unique_ptr<Stream> sender = processor.make_stream({}), receiver = processor.make_stream({});
  FlightRecorder recorder(messages, 1);
  recorder.begin(0);
  clock->begin(0);
  for (int i = 0; i < messages; ++i) {
    const int64_t bytes = sizes[i / repetitions];
    const at::Tensor out = make_flat(DType::Int8, bytes, processor.device());
    const at::Tensor in = make_flat(DType::Int8, bytes, processor.device());
    sender->launch([&] { world[0]->send(1, i, {bytes_of(out), out.nbytes()}); });
    sender->flush();
    receiver->launch([&] {
      clock->started(OpId(i));
      world[1]->receive(0, i, {bytes_of(in), in.nbytes()});
      clock->ended(OpId(i));
    });
    receiver->flush();
  }
  clock->end(recorder);
  const auto seconds = [&](int first) {
    std::vector<double> out;
    for (int i = first; i < first + repetitions; ++i) {
      const OpTimes times = recorder.times(0, OpId(i));
      out.push_back(static_cast<double>(times.ended - times.started) * 1e-9);
    }
    return median(std::move(out));
  };
  LocalLink link;
  link.latency = seconds(0);
  link.bandwidth = static_cast<double>(sizes[1]) / std::max(seconds(repetitions) - link.latency, 1e-9);
  return link;
}

std::string shared_cluster_text(const LocalLink& link, double together) {
  return fmt::format(
      "# Devices that share a GPU, as `piper profile` measured them.\n"
      "[cluster]\nname = \"shared\"\n\n"
      "[device.part]\nlaunch = \"0us\"\nissue = \"5us\"\n\n"
      "[[nodes]]\ndevice = \"part\"\ncount = 1\ndevices = 64\nprocessors = 1\ntogether = {:.4f}\n\n"
      "[[links]]\nname = \"memory\"\nlatency = \"{:.3f}us\"\nbandwidth = \"{:.0f}MB/s\"\n",
      together, link.latency * 1e6, link.bandwidth * 1e-6);
}

bool share_cores(const LocalDevices& devices) {
  return devices.count * devices.threads > devices.cores;
}

std::string local_cluster_text(const LocalLink& link, const LocalDevices& devices) {
  std::string node = "[[nodes]]\ndevice = \"thread\"\n";
  if (share_cores(devices))  // any device runs on any core: one processor that does several computations at once
    node += fmt::format("count = 1\ndevices = {}\nprocessors = 1\ntogether = {:.6g}\n", devices.count,
                        std::max(1.0, devices.cores / devices.threads));
  return fmt::format(
      "# Threads of one process, as `piper profile` measured them.\n"
      "[cluster]\nname = \"local\"\n\n"
      "[device.thread]\nlaunch = \"0us\"\nissue = \"0.2us\"\n\n"
      "{}\n"
      "[[links]]\nname = \"memory\"\nlatency = \"{:.3f}us\"\nbandwidth = \"{:.0f}MB/s\"\n",
      node, link.latency * 1e6, link.bandwidth * 1e-6);
}

namespace {

/// `use(op, start, end)`, in seconds, for every operation of a step that computes.
template <class Use>
void each_computation(const DeviceRun& device, int64_t step, const Use& use) {
  const auto& ops = device.program().ops;
  for (const OpId i : ops.ids()) {
    if (is_communication(ops[i].kind)) continue;
    const OpTimes times = device.recorder().times(step, i);
    use(ops[i], static_cast<double>(times.started) * 1e-9, static_cast<double>(times.ended) * 1e-9);
  }
}

CostTable::Key key_of(const Plan& plan, const PlannedOp& op) {
  const std::string& name = plan.names[op.label.name];
  if (op.kind == OpKind::Update) return {name, std::nullopt, 0};
  const PlanWork& work = plan.works[op.work];
  return {name, work.pass, work.samples};
}

template <class Wanted>
CostTable medians(const Plan& plan, const std::vector<DeviceRun*>& devices, const Wanted& wanted) {
  std::map<CostTable::Key, std::vector<double>> seen;
  for (const DeviceRun* device : devices)
    for (int64_t step = device->recorder().oldest(); step <= device->recorder().step(); ++step)
      each_computation(*device, step, [&](const PlannedOp& op, double start, double end) {
        if (wanted(op)) seen[key_of(plan, op)].push_back(end - start);
      });
  CostTable out;
  for (auto& [key, seconds] : seen) out.seconds[key] = median(std::move(seconds));
  return out;
}

}  // namespace

void add_update_costs(CostTable& costs, const Plan& plan, const std::vector<DeviceRun*>& devices) {
  costs.seconds.merge(medians(plan, devices, [](const PlannedOp& op) { return op.kind == OpKind::Update; }).seconds);
}

CostTable recorded_costs(const Plan& plan, const std::vector<DeviceRun*>& devices) {
  return medians(plan, devices, [](const PlannedOp&) { return true; });
}

std::optional<double> gain_together(double alone, const std::vector<Ran>& computations) {
  std::vector<std::pair<double, int>> edges;  // computations that begin and end
  for (const Ran& ran : computations) edges.insert(edges.end(), {{ran.start, 1}, {ran.end, -1}});
  std::sort(edges.begin(), edges.end());
  double by_one = 0, by_several = 0;  // seconds in which so many ran
  int running = 0;
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    running += edges[i].second;
    (running > 1 ? by_several : by_one) += running > 0 ? edges[i + 1].first - edges[i].first : 0;
  }
  if (by_several <= by_one / 100) return {};
  return (alone - by_one) / by_several;
}

double measure_together(const Plan& plan, const std::vector<DeviceRun*>& devices, const CostTable& costs) {
  std::vector<double> seen;
  for (int64_t step = devices[0]->recorder().oldest(); step <= devices[0]->recorder().step(); ++step) {
    double alone = 0;
    std::vector<Ran> computations;
    for (const DeviceRun* device : devices)
      each_computation(*device, step, [&](const PlannedOp& op, double start, double end) {
        alone += costs.seconds.at(key_of(plan, op));
        computations.push_back({start, end});
      });
    if (const auto gain = gain_together(alone, computations)) seen.push_back(*gain);
  }
  return seen.empty() ? 1 : median(std::move(seen));
}

}  // namespace piper
