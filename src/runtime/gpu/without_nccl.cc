// In place of with_nccl.cc where there is no NCCL to build with.
#include "base/invariant.h"
#include "runtime/gpu/join_by_nccl.h"

namespace piper {

std::string nccl_here() {
  return "";
}

std::vector<std::unique_ptr<Communicator>> join_by_nccl(std::vector<std::unique_ptr<Communicator>>,
                                                        std::chrono::milliseconds) {
  internal_error("several processes train on GPUs without NCCL");
}

}  // namespace piper
