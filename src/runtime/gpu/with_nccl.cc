#include "runtime/gpu/join_by_nccl.h"

#include "base/invariant.h"
#include "comm/gpu/gpu_world.h"
#include "comm/nccl/library/nccl_library.h"
#include "comm/nccl/nccl_communicator.h"

namespace piper {

std::string nccl_here() {
  return nccl_version();
}

std::vector<std::unique_ptr<Communicator>> join_by_nccl(std::vector<std::unique_ptr<Communicator>> wires,
                                                        std::chrono::milliseconds patience) {
  invariant(wires.size() == 1, "a process has one GPU");
  wires[0] = make_nccl_communicator(
      {make_nccl_calls(), make_nccl_device(), std::move(wires[0]), std::move(make_gpu_world(1)[0]), patience});
  return wires;
}

}  // namespace piper
