// What a device launches at once, decided before the first step: an operation, both ends of a transfer that stays on
// the device, or a CUDA graph segment.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "plan/free_order.h"
#include "runtime/device_streams.h"
#include "runtime/graph_segment.h"

namespace piper {

struct Launch {
  Stream* stream = nullptr;
  OpId op;                  // the first of the operations
  std::vector<OpId> waits;  // operations on other streams that have to end before it starts
  std::function<void()> work;
  std::vector<OpId> records;  // operations whose events are recorded after it
};

struct LaunchUnit {
  std::vector<Launch> launches;           // all are launched before any of them is waited for
  std::vector<BufferFree> frees;          // after it
  std::unique_ptr<GraphSegment> segment;  // null: operations
  std::vector<LaunchUnit> singly;         // of a segment: its operations, for steps in which it cannot be launched
};

/// In the order of the plan. Events are recorded only where something waits for them.
std::vector<LaunchUnit> make_launch_units(Operations& operations, DeviceStreams& streams, const FreeOrder& frees,
                                          Processor& processor);

}  // namespace piper
