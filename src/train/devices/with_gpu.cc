#include "train/devices/use_gpu.h"

#include "runtime/gpu/gpu_processor.h"
#include "runtime/gpu/join_by_nccl.h"
#include "train/loop/together.h"
#include "train/run_problems.h"

namespace piper {

Result<std::unique_ptr<Processor>> use_gpu(const GpuUse& use) {
  GpuOptions options{.deterministic = use.deterministic,
                     .graphs = use.graphs,
                     .times_in_graphs = use.times_in_graphs,
                     .gpu = use.gpu,
                     .turns = use.turns};
  if (use.world) {
    if (nccl_here().empty()) return built_without_nccl();
    PIPER_TRY(options.gpu, take_gpu(*use.world, visible_gpus(), use.timeout));
  }
  return make_gpu_processor(options);
}

std::string gpu_architecture() {
  return current_gpu();
}

std::string joins_gpus() {
  return nccl_here();
}

}  // namespace piper
