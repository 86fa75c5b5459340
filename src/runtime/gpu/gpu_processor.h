// A GPU as what computes for devices: streams of CUDA, memory of libtorch, kernels of runtime/cuda.
#pragma once

#include <memory>

#include "base/result.h"
#include "runtime/processor.h"

namespace piper {

struct GpuOptions {
  /// Operators give the same bits in every run, at some cost.
  bool deterministic = false;
  /// Memory gets its places after the second step, and chunks without random numbers are graphs from then on.
  bool graphs = false;
};

/// The first GPU of this machine. Refused (E807) where there is none.
Result<std::unique_ptr<Processor>> make_gpu_processor(const GpuOptions& options = {});

}  // namespace piper
