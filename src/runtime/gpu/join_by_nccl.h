// Devices that are GPUs of their own, one for each process.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace piper {

/// Which NCCL joins them; empty: this program was built without it, and none can be joined.
std::string nccl_here();

/// Over `host_communicators`, which carry messages of the host: that of the one device which this process has.
std::vector<std::unique_ptr<Communicator>> join_by_nccl(std::vector<std::unique_ptr<Communicator>> host_communicators,
                                                        std::chrono::milliseconds timeout);

}  // namespace piper
