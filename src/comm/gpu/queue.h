// Where a thread puts the work that it gives a GPU.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <vector>

namespace piper {

/// An event of a GPU that goes when its owner does.
class GpuEvent {
 public:
  explicit GpuEvent(unsigned flags = cudaEventDisableTiming);
  ~GpuEvent();
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  void record(cudaStream_t stream);
  /// What is put on the stream from now on begins when the work before the event has ended.
  void hold(cudaStream_t stream) const;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Makes a stream wait for another device that reads memory of this one. The calling thread waits until the other has
/// put its work on a stream.
using AwaitReader = std::function<void(cudaStream_t)>;

/// A stream, and what others still read of what was put on it.
struct GpuQueue {
  cudaStream_t stream = nullptr;
  std::vector<AwaitReader> readers;
};

/// While it lives, what this thread communicates goes to the queue.
class OnQueue {
 public:
  explicit OnQueue(GpuQueue& queue);
  ~OnQueue();
  OnQueue(const OnQueue&) = delete;
  OnQueue& operator=(const OnQueue&) = delete;

 private:
  GpuQueue* before_;
};
/// Of this thread.
GpuQueue& current_queue();

}  // namespace piper
