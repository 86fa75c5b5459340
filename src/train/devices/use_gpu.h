// Where training on a GPU begins.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "comm/world.h"
#include "runtime/processor.h"
#include "runtime/watch.h"

namespace piper {

/// `none`, `chunk`, `step`: as users write it.
inline Graphs graphs_named(std::string_view name) {
  return name == "chunk" ? Graphs::Chunk : name == "step" ? Graphs::Step : Graphs::None;
}

struct GpuUse {
  bool deterministic = false;  // operators give the same bits in every run
  Graphs graphs = Graphs::None;
  bool times_in_graphs = false;  // of every operation, for a trace
  int gpu = 0;                   // of those that this process sees, where all devices share one
  /// Processes with a GPU each; none: all devices share one.
  World* world = nullptr;
  Timeouts timeout = {};  // for the others
  /// Computations are measured alone while turns are taken; none: never.
  const Turns* turns = nullptr;
};

/// E807: there is no GPU, or too few, or this program was built without what GPUs need.
Result<std::unique_ptr<Processor>> use_gpu(const GpuUse& use);
/// Its name and architecture, of the one that the calling thread uses; empty: there is none.
std::string gpu_architecture();
/// What joins several GPUs, with its version; empty: nothing does.
std::string joins_gpus();

}  // namespace piper
