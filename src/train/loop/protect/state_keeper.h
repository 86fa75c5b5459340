// Copies of what the devices hold between two steps, and the way back to them. README.md says what is copied where.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/loop/checkpoint/writers.h"
#include "train/loop/protect/recent_states.h"
#include "train/loop/training_run.h"

namespace piper {

class StateKeeper {
 public:
  /// After `TrainingRun::begin`. All processes make it, and call its members in the same order. Both outlive it.
  /// `hosts`: where the processes are, by rank.
  StateKeeper(TrainingRun& run, RecentStates& states, const std::vector<std::string>& hosts);

  /// After a step that has updated the weights; everybody has taken it. Throws RunError.
  void keep(StatePosition progress);

  /// Gives the devices what they held after the newest step that all of it is there of. None: there is no such step,
  /// and none was done: the run begins. E805: some were done (`RecentStates::done`). Throws RunError.
  Result<std::optional<StatePosition>> restore();

 private:
  /// A device as all processes know it.
  struct Device {
    int number = 0, rank = 0;
    int64_t bytes = 0;
    bool has_buffers = false;  // that passes write: no other device has the same
  };
  /// A process has what a device held.
  struct Held {
    int rank = 0, device = 0;
    StatePosition progress;
  };
  /// A device gets what that one held, from the process that has it.
  struct Delivery {
    int device = 0, source = 0, from = 0;
  };

  std::vector<Device> devices_of_all(std::vector<Device> here);
  void find_places(const std::vector<int>& lost_together);
  std::vector<at::Tensor> tensors_of(DeviceRun& device) const;
  void copy_own(StateVersion& version);
  void copy_back(const StateVersion& version);
  void exchange_copies(StateVersion& version);
  bool is_same(const Device& one, const Device& other) const;
  StateVersion& version_for(int64_t step);
  std::vector<Held> held_here() const;
  std::optional<Delivery> delivery(const Device& device, const std::vector<Held>& held, int64_t step) const;
  std::optional<std::vector<Delivery>> deliveries(const std::vector<Held>& held, int64_t step) const;
  std::span<std::byte> bytes_here(int64_t step, int device);
  Diagnostic what_is_lost(const std::vector<Held>& held) const;
  void deliver(const std::vector<Delivery>& deliveries, const StatePosition& progress);

  TrainingRun& run_;
  RecentStates& states_;
  const int rank_, count_;  // of processes
  std::shared_ptr<Communicator> ranks_;
  int group_ = -1;
  Writers writers_;
  std::vector<Device> devices_;     // by number
  DevicePlaces own_;                // first those that are sent
  std::vector<DevicePlaces> sent_;  // by rank: devices whose state nobody else has
  int distance_ = 1;                // to the process that has the copy
  bool anybody_sends_ = false;
  int64_t kept_ = 0, delivered_ = 0;  // sequence numbers
};

}  // namespace piper
