// Cluster files as parse_cluster reads them.
#include <fmt/format.h>

#include "base/text/scanner.h"
#include "cost/cluster.h"

namespace piper {
namespace {

std::string microseconds(double value) {
  return fmt::format("\"{:.6g}us\"", value * 1e6);
}
std::string gigabytes(double value) {
  return fmt::format("\"{:.6g}GB/s\"", value * 1e-9);
}

std::string print(const OperatorCosts& costs, const std::string& name) {
  std::string out = fmt::format("\n[device.{}.operators]\nissue = {}\nsharpness = {:.6g}\nmultiprocessors = {}\n", name,
                                microseconds(costs.issue), costs.sharpness, costs.multiprocessors);
  for (const Tile& tile : costs.tiles)
    out += fmt::format("{}[{}, {}, {:.6g}]", &tile == &costs.tiles.front() ? "tiles = [" : ", ", tile.rows,
                       tile.columns, tile.speed);
  return out + (costs.tiles.empty() ? "" : "]\n");
}

std::string print(const DeviceKind& kind) {
  const std::string name = fmt::format("{:?}", kind.name);
  std::string out = fmt::format("\n[device.{}]\n", name);
  if (kind.memory) out += fmt::format("memory = {}\n", *kind.memory);
  out += fmt::format("bandwidth = {}\n", gigabytes(kind.memory_bandwidth));
  out += fmt::format("compute_efficiency = {:.6g}\nmemory_efficiency = {:.6g}\n", kind.compute_efficiency,
                     kind.memory_efficiency);
  out += fmt::format("launch = {}\nissue = {}\n", microseconds(kind.launch), microseconds(kind.issue));
  out += fmt::format("\n[device.{}.peak]\n", name);
  for (size_t i = 0; i < dtype_count; ++i)
    if (kind.peak[i] > 0)
      out += fmt::format("{} = \"{:.6g}TFLOPS\"\n", piper::name(static_cast<DType>(i)), kind.peak[i] * 1e-12);
  if (kind.operators) out += print(*kind.operators, name);
  return out;
}

std::string print(const NodeRun& run, const Cluster& cluster) {
  std::string out = "\n[[nodes]]\n";
  if (run.count > 0) out += fmt::format("count = {}\n", run.count);
  out += fmt::format("devices = {}\ndevice = {:?}\n", run.devices, cluster.kinds[static_cast<size_t>(run.kind)].name);
  if (run.processors > 0) out += fmt::format("processors = {}\n", run.processors);
  if (run.processors > 0 && run.processors != run.devices) out += fmt::format("together = {:.6g}\n", run.together);
  return out;
}

std::string print(const LinkLevel& level) {
  std::string out = fmt::format("\n[[links]]\nname = {:?}\n", level.name);
  if (level.joins > 0) out += fmt::format("joins = {}\n", level.joins);
  out += fmt::format("ports = {}\nbandwidth = {}\nlatency = {}\n", level.ports, gigabytes(level.bandwidth),
                     microseconds(level.latency));
  if (level.gap) out += fmt::format("gap = {}\n", microseconds(*level.gap));
  if (level.reduces) out += fmt::format("reduces = true\nreduce_share = {:.6g}\n", level.reduce_share);
  for (const EfficiencyPoint& point : level.efficiency)
    out += fmt::format("{}[{:.0f}, {:.6g}]", &point == &level.efficiency.front() ? "efficiency = [" : ", ", point.bytes,
                       point.share);
  return out + (level.efficiency.empty() ? "" : "]\n");
}

}  // namespace

std::string print(const Cluster& cluster) {
  std::string out = fmt::format("[cluster]\nname = {:?}\n", cluster.name);
  if (cluster.slowdown > 0) out += fmt::format("slowdown = {:.6g}\n", cluster.slowdown);
  if (cluster.step > 0) out += fmt::format("step = {}\n", microseconds(cluster.step));
  for (const DeviceKind& kind : cluster.kinds) out += print(kind);
  for (const NodeRun& run : cluster.nodes) out += print(run, cluster);
  for (const LinkLevel& level : cluster.levels) out += print(level);
  return out;
}

}  // namespace piper
