// NCCL itself, and the GPU that the calling thread uses.
#pragma once

#include <memory>
#include <string>

#include "comm/nccl/nccl_calls.h"

namespace piper {

std::shared_ptr<NcclCalls> make_nccl_calls();
/// Of the current GPU, on the queue of the calling thread (comm/gpu/queue.h).
std::unique_ptr<NcclDevice> make_nccl_device();
/// `NCCL 2.28.9`: of the library that is loaded.
std::string nccl_version();

}  // namespace piper
