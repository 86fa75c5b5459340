#include "train/gpu_claims.h"

#include <fmt/format.h>

#include <set>

namespace piper {

Result<std::vector<int>> give_out(const std::vector<GpuClaim>& claims) {
  std::set<std::string> taken;
  std::vector<int> out;
  for (const GpuClaim& claim : claims) {
    size_t gpu = 0;
    while (gpu < claim.gpus.size() && taken.contains(claim.gpus[gpu])) ++gpu;
    if (claim.gpus.empty())
      return error(ErrorCode::E807, {}, fmt::format("{} sees no GPU that can be used", claim.process))
          .help("nvidia-smi on its host shows whether the driver sees one; CUDA_VISIBLE_DEVICES may hide it")
          .help("--on cpu (in Python: on=\"cpu\") trains on the CPU");
    if (gpu == claim.gpus.size())
      return error(ErrorCode::E807, {},
                   fmt::format("there is no GPU left for {}: it sees {}, and processes before it have {}",
                               claim.process, claim.gpus.size(), claim.gpus.size() == 1 ? "it" : "them all"))
          .help("start at most as many processes on a host as it has GPUs")
          .help("without --backend all devices share one GPU");
    taken.insert(claim.gpus[gpu]);
    out.push_back(static_cast<int>(gpu));
  }
  return out;
}

}  // namespace piper
