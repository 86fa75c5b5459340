#include "tools/use_gpu.h"

#include "runtime/gpu/gpu_processor.h"

namespace piper {

Result<std::unique_ptr<Processor>> use_gpu(const GpuUse& use) {
  return make_gpu_processor({use.deterministic, use.graphs, use.times_in_graphs});
}

}  // namespace piper
