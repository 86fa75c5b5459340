// Host copies of what the devices of this process write into a checkpoint: a step waits only while they are made.
#pragma once

#include <map>
#include <span>
#include <tuple>

#include "train/loop/checkpoint/model_state.h"

namespace piper {

class Snapshot {
 public:
  /// Takes the memory, which is used again by every checkpoint: `copied_bytes` of the devices, which outlive it.
  Snapshot(const Plan& plan, const StepConfig& step, const ModelState& state, const std::vector<DeviceRun*>& devices);

  /// Between steps.
  void take();
  int64_t bytes() const;
  /// Elements of a device's part of a bucket, from `element` on, as they were then. All of them are written by it.
  std::span<const std::byte> at(int device, BucketId bucket, Kept kept, int64_t element, int64_t count) const;

 private:
  struct Copy {
    at::Tensor source, copy;
    int64_t first = 0;  // element of the part
  };
  std::map<std::tuple<int, BucketId, Kept>, Copy> copies_;
  std::vector<DeviceRun*> devices_;
};

}  // namespace piper
