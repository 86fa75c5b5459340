#include "cost/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/toml_section.h"

namespace piper {
namespace {

/// A number above 0, if the key is there.
Checked read_positive(const TomlSection& section, std::string_view key, double& into) {
  PIPER_TRY(const auto number, section.number(key));
  if (number && *number <= 0)
    return section.bad(key, fmt::format("{} must be above 0", key)).help("leave it out for the usual value");
  into = number.value_or(into);
  return Ok{};
}

Checked read_device(const TomlSection& device, Cluster& cluster) {
  PIPER_CHECK(device.only({"memory", "flops", "bandwidth", "launch"}));
  PIPER_TRY(cluster.memory, device.bytes("memory"));
  PIPER_CHECK(read_positive(device, "flops", cluster.flops));
  PIPER_CHECK(read_positive(device, "bandwidth", cluster.memory_bandwidth));
  return read_positive(device, "launch", cluster.launch);
}

Checked read_link(const TomlSection& link, Cluster& cluster) {
  PIPER_CHECK(link.only({"bandwidth", "latency"}));
  PIPER_CHECK(read_positive(link, "bandwidth", cluster.link_bandwidth));
  return read_positive(link, "latency", cluster.link_latency);
}

}  // namespace

Result<Cluster> parse_cluster(const SourceFilePtr& file) {
  PIPER_TRY(const TomlValue root, parse_toml(file));
  const TomlSection whole("the file", root);
  PIPER_CHECK(whole.only({"cluster", "device", "link"}));
  Cluster cluster;
  PIPER_TRY(const auto named, whole.section("cluster"));
  if (named) {
    PIPER_CHECK(named->only({"name"}));
    PIPER_TRY(const auto name, named->text("name"));
    cluster.name = name.value_or(cluster.name);
  }
  PIPER_TRY(const auto device, whole.section("device"));
  if (device) PIPER_CHECK(read_device(*device, cluster));
  PIPER_TRY(const auto link, whole.section("link"));
  if (link) PIPER_CHECK(read_link(*link, cluster));
  return cluster;
}

double compute_seconds(const Cluster& cluster, const PassWork& work, int64_t samples) {
  const double flops = static_cast<double>(work.flops.at(samples)) / cluster.flops;
  const double bytes = static_cast<double>(work.bytes_moved.at(samples)) / cluster.memory_bandwidth;
  return std::max(flops, bytes) + cluster.launch;
}

double transfer_seconds(const Cluster& cluster, int64_t bytes) {
  return cluster.link_latency + static_cast<double>(bytes) / cluster.link_bandwidth;
}

double collective_seconds(const Cluster& cluster, int64_t bytes, int members) {
  if (members < 2) return cluster.launch;
  return cluster.link_latency * std::ceil(std::log2(members)) + static_cast<double>(bytes) / cluster.link_bandwidth;
}

}  // namespace piper
