#include "runtime/gpu/join_by_nccl.h"

#include "base/invariant.h"
#include "comm/gpu/gpu_world.h"
#include "comm/nccl/library/nccl_library.h"
#include "comm/nccl/nccl_communicator.h"

namespace piper {

std::string nccl_here() {
  return nccl_version();
}

std::vector<std::unique_ptr<Communicator>> join_by_nccl(std::vector<std::unique_ptr<Communicator>> host_communicators,
                                                        std::chrono::milliseconds timeout) {
  invariant(host_communicators.size() == 1, "a process has one GPU");
  host_communicators[0] =
      make_nccl_communicator({make_nccl_calls(), make_nccl_device(), std::move(host_communicators[0]),
                              std::move(make_gpu_world(1)[0]), timeout});
  return host_communicators;
}

}  // namespace piper
