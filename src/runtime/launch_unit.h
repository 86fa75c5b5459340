// What a device puts on its streams at once, found before the first step: an operation, both ends of a transfer that
// stays on the device, or a CUDA graph segment.
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
  std::vector<OpId> waits;  // operations on other streams that end before
  std::function<void()> work;
  std::vector<OpId> records;  // operations whose events others wait for
};

struct LaunchUnit {
  std::vector<Launch> launches;         // all are put in before one is waited for
  std::vector<BufferRelease> releases;  // what goes behind it
  GraphSegment* segment = nullptr;      // none: operations
  std::vector<LaunchUnit> singly = {};  // its operations, one by one, for when it cannot be launched
};

}  // namespace piper
