// What a device launches at once, decided before the first step: an operation, both ends of a transfer that stays on
// the device, or a CUDA graph segment.
#pragma once

#include <functional>
#include <vector>

#include "runtime/graph_segment.h"
#include "runtime/memory_order.h"
#include "runtime/stream/stream.h"

namespace piper {

struct Launch {
  Stream* stream = nullptr;
  OpId op;                  // the first of the operations
  std::vector<OpId> waits;  // operations on other streams that have to end before it starts
  std::function<void()> work;
  std::vector<OpId> records;  // operations whose events are recorded behind it
};

struct LaunchUnit {
  std::vector<Launch> launches;         // all are launched before any of them is waited for
  std::vector<BufferRelease> releases;  // buffers that are freed behind it
  GraphSegment* segment = nullptr;      // null: operations
  std::vector<LaunchUnit> singly =
      {};  // of a segment: its operations one by one, for steps in which it cannot be launched
};

}  // namespace piper
