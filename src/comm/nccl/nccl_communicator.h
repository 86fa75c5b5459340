// One device's end of all communication where every device is a GPU of its own, in a process of its own.
//
// Calls put their work on the stream of the calling thread and return; only making process groups and connections waits
// for others, and the first call that two devices make to each other. Each process group is a communicator of NCCL, and
// so is each direction between two devices: NCCL runs the calls of a communicator one after the other.
#pragma once

#include <chrono>
#include <memory>

#include "comm/nccl/nccl_calls.h"

namespace piper {

struct NcclParts {
  std::shared_ptr<NcclCalls> calls;
  std::unique_ptr<NcclDevice> device;
  /// Carries messages of the host between the same devices: by it they find each other, and hear of the job's end.
  std::unique_ptr<Communicator> host;
  /// Carries what the device sends to itself: a world of one.
  std::unique_ptr<Communicator> here;
  /// For the making of a communicator.
  std::chrono::milliseconds timeout;
};
std::unique_ptr<Communicator> make_nccl_communicator(NcclParts parts);

}  // namespace piper
