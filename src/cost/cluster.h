// What the devices can do and how they are connected, as far as the compiler needs it.
#pragma once

#include <optional>

#include "base/result.h"
#include "model/model_graph.h"

namespace piper {

/// A cluster file: docs/cluster.md. Without one the defaults below stand for an unspecified modern accelerator.
struct Cluster {
  std::string name = "unspecified";
  std::optional<int64_t> memory;   // bytes of one device; absent: plans are not refused for their size
  double flops = 300e12;           // per second, reached
  double memory_bandwidth = 2e12;  // bytes per second
  double link_bandwidth = 50e9;    // bytes per second between two devices
  double link_latency = 10e-6;     // seconds per message
  double launch = 5e-6;            // seconds every operation takes at least
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

/// TOML: [cluster] name, [device] memory flops bandwidth launch, [link] bandwidth latency. Unknown keys are errors
/// (E111).
Result<Cluster> parse_cluster(const SourceFilePtr& file);

/// Seconds of a pass over `samples` samples: the longer of computing and moving bytes.
double compute_seconds(const Cluster& cluster, const PassWork& work, int64_t samples);
/// Seconds until a message of so many bytes has arrived.
double transfer_seconds(const Cluster& cluster, int64_t bytes);
/// Seconds of a collective in which every one of `members` devices sends `bytes` in all.
double collective_seconds(const Cluster& cluster, int64_t bytes, int members);

}  // namespace piper
