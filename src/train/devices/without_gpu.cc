#include "train/devices/use_gpu.h"

#include "train/run_problems.h"

namespace piper {

Result<std::unique_ptr<Processor>> use_gpu(const GpuUse&) {
  return built_without_gpus();
}

std::string gpu_architecture() {
  return "";
}

std::string joins_gpus() {
  return "";
}

}  // namespace piper
