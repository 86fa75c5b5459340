// Several devices that share one GPU: how every strategy runs on one card.
//
// A call returns when its work is on the calling thread's queue (queue.h): data is there, and may be overwritten, for
// what is put on the queue afterwards. A thread waits only until its partners have put their part on theirs; one that
// sends does not even do that (`GpuQueue::readers`). Sums have the order and the bits of comm/local.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace piper {

/// One communicator per device, all joined. `timeout`: how long a thread waits for the others.
std::vector<std::unique_ptr<Communicator>> make_gpu_world(int devices,
                                                          std::chrono::milliseconds timeout = std::chrono::minutes(5));

}  // namespace piper
