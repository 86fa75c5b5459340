// Copies of what the devices hold between two steps, and the way back to them. README.md says what is copied where.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/result.h"
#include "train/loop/checkpoint/writers.h"
#include "train/loop/protect/recent_states.h"
#include "train/loop/training_run.h"

namespace piper {

class StateKeeper {
 public:
  /// After `TrainingRun::begin`. All processes make it, and call its members in the same order. Both outlive it.
  StateKeeper(TrainingRun& run, RecentStates& states);

  /// After a step that has updated the weights; everybody has taken it. Throws RunError.
  void keep(StatePosition progress);

  /// Gives the devices what they held after the newest step that all of it is there of. None: nobody has anything, and
  /// the run begins. E805: of no step all of it is there. Throws RunError.
  Result<std::optional<StatePosition>> restore();

  /// Bytes that this process copies, and that it sends to the next, each time.
  int64_t copied_bytes() const { return own_.bytes; }
  int64_t sent_bytes() const { return to_next_; }

 private:
  /// A device as all processes know it.
  struct Device {
    int number = 0, rank = 0;
    int64_t bytes = 0;
    bool has_buffers = false;  // that passes write: no other device has the same
  };
  struct Place {
    int64_t begin = 0, bytes = 0;
  };
  /// Devices, one behind the other.
  struct Layout {
    std::map<int, Place> places;  // by device
    int64_t bytes = 0;
    void add(const Device& device);
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
  std::vector<at::Tensor> tensors_of(DeviceRun& device) const;
  void copy_own(StateVersion& version);
  void copy_back(const StateVersion& version);
  bool is_same(const Device& one, const Device& other) const;
  StateVersion& version_for(int64_t step);
  std::vector<Held> held_here() const;
  std::optional<std::vector<Delivery>> deliveries(const std::vector<Held>& held, int64_t step) const;
  std::span<std::byte> bytes_here(int64_t step, int device);
  void deliver(const std::vector<Delivery>& deliveries, const StatePosition& progress);

  TrainingRun& run_;
  RecentStates& states_;
  std::shared_ptr<Communicator> ranks_;
  int group_ = -1;
  Writers writers_;
  std::vector<Device> devices_;  // by number
  Layout own_, previous_;
  int64_t to_next_ = 0;  // bytes of own_, from its beginning
  bool anybody_sends_ = false;
  int64_t kept_ = 0, delivered_ = 0;  // sequence numbers
};

}  // namespace piper
