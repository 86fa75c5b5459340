// What a process has in memory of a run's last steps, whatever happens to the other processes.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace piper {

/// Where a run stands.
struct StatePosition {
  int64_t step = 0, samples = 0, updates = 0;  // as in RunState
  double learning_rate = 0, loss = 0;
  uint64_t plan = 0;  // its hash
};

struct BytePlace {
  int64_t begin = 0, bytes = 0;
  friend bool operator==(const BytePlace&, const BytePlace&) = default;
};
/// Devices, one after another.
struct DevicePlaces {
  std::map<int, BytePlace> of;  // by device
  int64_t bytes = 0;

  void add(int device, int64_t its_bytes) {
    of[device] = {bytes, its_bytes};
    bytes += its_bytes;
  }
  friend bool operator==(const DevicePlaces&, const DevicePlaces&) = default;
};

/// What devices held. The processes of another epoch may be on other hosts, so it knows whose it is.
struct HeldState {
  DevicePlaces places;
  at::Tensor bytes;
  bool whole = false;  // otherwise it is being written, or was when somebody was lost
};

struct StateVersion {
  StatePosition progress;
  HeldState own;                     // of the devices of this process
  std::vector<HeldState> of_others;  // of processes whose copies are here
};

/// Outlives the processes' connections. Empty: of a process that has just come.
struct RecentStates {
  std::array<StateVersion, 2> versions;
  int64_t done = 0;  // updates since the run began, as far as any process of it has said
};

}  // namespace piper
