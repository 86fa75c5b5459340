// What the devices of a cluster can do, and how they are connected.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/operator_work.h"

namespace piper {

constexpr int max_link_levels = 4;

/// A part of a matrix product's result that one multiprocessor computes at a time.
struct Tile {
  int rows = 128, columns = 128;
  double speed = 1;  // with which all multiprocessors compute such tiles, of what the device reaches
  friend bool operator==(const Tile&, const Tile&) = default;
};

/// How a kind of device runs the operators of a computation: docs/cluster.md.
struct OperatorCosts {
  double issue = 0;         // host seconds to launch one kernel
  double sharpness = 4;     // of the maximum of host and device: (host^s + device^s)^(1/s)
  int multiprocessors = 1;  // as many tiles are computed at once
  std::vector<Tile> tiles;  // the fastest is used; empty: a product takes what its operations take
  friend bool operator==(const OperatorCosts&, const OperatorCosts&) = default;
};

/// A kind of device. The defaults stand for an unspecified modern accelerator.
struct DeviceKind {
  std::string name = "accelerator";
  std::optional<int64_t> memory;         // bytes; absent: plans are not refused for their size
  std::array<double, dtype_count> peak;  // operations per second by DType; 0: not known
  double compute_efficiency = 1;         // share of the peak that computations reach
  double memory_bandwidth = 2e12;        // bytes per second
  double memory_efficiency = 1;          // share of it that computations reach
  double launch = 5e-6;                  // device seconds every operation takes at least: added to a computation
  double issue = 2e-6;                   // host seconds to issue one operation
  /// Computations are priced by their operators, where the model says what they are; absent: as a whole.
  std::optional<OperatorCosts> operators;
  SourceRange where;

  DeviceKind() { peak.fill(300e12); }
  friend bool operator==(const DeviceKind&, const DeviceKind&) = default;
};

/// Messages of so many bytes reach this share of a link's bandwidth.
struct EfficiencyPoint {
  double bytes = 0;
  double share = 1;
  friend bool operator==(const EfficiencyPoint&, const EfficiencyPoint&) = default;
};

/// Links that join blocks of `joins` devices with consecutive numbers, the level's units: a node of 8, a pod of 256.
/// The ports belong to the units of the level below (a unit of the innermost level's below is a device): `ports` ports
/// for each, evenly given to its devices.
struct LinkLevel {
  std::string name = "link";
  int joins = 0;              // devices; 0: all there are
  int ports = 1;              // of every unit of the level below
  double bandwidth = 50e9;    // bytes per second of one port, in each direction
  double latency = 10e-6;     // seconds until a message between devices that meet here begins to arrive
  std::optional<double> gap;  // seconds between two messages that a device sends to several others; absent: the latency
  bool reduces = false;       // the switch adds up what passes through it (NVLS, SHARP)
  double reduce_share = 1;    // share of the bandwidth that is left when it does
  std::vector<EfficiencyPoint> efficiency;  // by bytes, interpolated over log2(bytes); empty: all of the bandwidth
  SourceRange where;
  friend bool operator==(const LinkLevel&, const LinkLevel&) = default;
};

/// `count` nodes of `devices` devices of one kind.
struct NodeRun {
  int count = 0;  // 0, only in the last run: as many as wanted
  int devices = 1;
  int kind = 0;  // into Cluster::kinds
  /// Of a node, evenly given to its devices; 0: every device has its own. Computations of devices that share a
  /// processor share its time.
  int processors = 0;
  double together = 1;  // what a processor does with several computations at once, of what it does with one
  friend bool operator==(const NodeRun&, const NodeRun&) = default;
};

/// A cluster file: docs/cluster.md. Without one: any number of unspecified accelerators, all joined by one level.
struct Cluster {
  std::string name = "unspecified";
  std::vector<DeviceKind> kinds = {DeviceKind{}};
  std::vector<NodeRun> nodes;                     // devices are numbered in this order; empty: any number of kinds[0]
  std::vector<LinkLevel> levels = {LinkLevel{}};  // innermost first, at most max_link_levels
  double slowdown = 0;                            // share of its speed that computation loses beside communication
  double step = 0;                                // seconds of every step besides all operations
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

/// TOML, as docs/cluster.md describes it. Whatever makes no sense is an error with its place (E111).
Result<Cluster> parse_cluster(const SourceFilePtr& file);
/// The file that describes it, without comments.
std::string print(const Cluster& cluster);

const DeviceKind& kind_of(const Cluster& cluster, int device);
/// The processor that devices share, and those that share it; nothing: the device has its own.
struct SharedProcessor {
  int first = 0;  // of the devices that share it
  double together = 1;
};
std::optional<SharedProcessor> shared_processor(const Cluster& cluster, int device);
/// How many devices there are, or INT_MAX.
int device_limit(const Cluster& cluster);
/// The innermost level that joins two devices; -1: none.
int common_level(const Cluster& cluster, int a, int b);
/// The number of the device's port at a level; devices behind one port have the same number.
int port_of(const Cluster& cluster, int level, int device);
/// Bytes per second, in each direction, of what port_of numbers.
double port_bandwidth(const Cluster& cluster, int level);
/// Share of its bandwidth that a level reaches with messages of so many bytes.
double efficiency_at(const LinkLevel& level, double bytes);

/// There are so many devices, and links join them all; otherwise names the device (E205) or the missing link (E111).
/// `where`: what asks for them.
Checked check_devices(const Cluster& cluster, int devices, const SourceRange& where);
/// Every kind among the first `devices` says how fast it computes in this dtype (E111).
Checked check_dtype(const Cluster& cluster, int devices, DType dtype);

/// Seconds of a computation: by its operators, if both the kind and the work say what they are; otherwise the longer of
/// computing and moving bytes, and the launch. What has no peak in the dtype is only moved; check_dtype sees to it that
/// this is never the model's own.
double compute_seconds(const DeviceKind& kind, DType dtype, const DeviceWork& work);

}  // namespace piper
