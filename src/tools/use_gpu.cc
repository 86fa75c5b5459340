#include "tools/use_gpu.h"

#include "runtime/gpu/gpu_processor.h"

namespace piper {

Result<std::unique_ptr<Processor>> use_gpu(bool deterministic) {
  return make_gpu_processor({deterministic});
}

}  // namespace piper
