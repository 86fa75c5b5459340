// Where training on a GPU begins.
#pragma once

#include <memory>

#include "base/result.h"
#include "runtime/processor.h"

namespace piper {

struct GpuUse {
  bool deterministic = false;  // operators give the same bits in every run
  Graphs graphs = Graphs::None;
  bool times_in_graphs = false;  // of every operation, for a trace
};

/// The GPU of this machine, for all devices. E807: there is none, or this program was built without what GPUs need.
Result<std::unique_ptr<Processor>> use_gpu(const GpuUse& use);

}  // namespace piper
