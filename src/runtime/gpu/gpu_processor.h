// A GPU as what computes for devices: CUDA streams, memory of libtorch, kernels of runtime/cuda.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/processor.h"

namespace piper {

struct GpuOptions {
  /// Operators give the same bits in every run, at some cost.
  bool deterministic = false;
  /// From the third step on memory has its places, in arenas. Otherwise it is libtorch's: to compare with.
  bool arenas = true;
  /// Chunks, or segments of them, are graphs from then on. Needs arenas.
  Graphs graphs = Graphs::None;
  /// When every operation inside a graph began and ended, which costs time. Otherwise they share that of the graph.
  bool times_in_graphs = false;
  /// Which one of this machine's.
  int gpu = 0;
  const Turns* turns = nullptr;  // that devices take; none: they never do
};

/// Since the program began, on all devices.
struct GpuCounts {
  int64_t graphs = 0;      // launched
  int64_t unrecorded = 0;  // what could not be recorded
  int64_t arena_misses =
      0;  // pieces of memory that were not where the arena has them, and came from libtorch's allocator
};
GpuCounts gpu_counts();

/// Names of the GPUs that this process sees: the same in every process.
std::vector<std::string> visible_gpus();

/// Name and compute capability of the one that the calling thread uses; empty: there is none.
std::string current_gpu();

/// A GPU of this machine. Refused (E807) where there is none.
Result<std::unique_ptr<Processor>> make_gpu_processor(const GpuOptions& options = {});

}  // namespace piper
