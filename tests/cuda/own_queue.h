// A stream for the calls of a test.
#pragma once

#include <utility>

#include "comm/gpu/check.h"
#include "comm/gpu/queue.h"

namespace piper {

/// A stream of the calling thread, with everything on it done at the end.
struct OwnQueue {
  OwnQueue() { check_cuda(cudaStreamCreateWithFlags(&queue.stream, cudaStreamNonBlocking), "make a stream"); }
  ~OwnQueue() { cudaStreamDestroy(queue.stream); }
  void finish() {
    for (const AwaitReader& reader : std::exchange(queue.readers, {})) reader(queue.stream);
    check_cuda(cudaStreamSynchronize(queue.stream), "wait for a stream");
  }
  GpuQueue queue;
  OnQueue on{queue};
};

}  // namespace piper
