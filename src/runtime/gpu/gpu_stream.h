// A stream of a GPU. Work runs at once on the calling thread, one for each device, and puts kernels and copies there.
#pragma once

#include <c10/cuda/CUDAStream.h>

#include "comm/gpu/queue.h"
#include "runtime/stream/stream.h"

namespace piper {

class GpuStream : public Stream {
 public:
  explicit GpuStream(c10::DeviceIndex gpu);
  ~GpuStream() override;

  /// The event was recorded before, by the same thread. If others read what was sent before the event, it comes when
  /// they have.
  void wait(const Event& event, uint32_t step) override;
  void launch(std::function<void()> work) override;
  void record(Event& event, uint32_t step) override;
  /// The calling thread waits.
  void flush() override;
  bool idle() const override { return true; }  // what is put in runs at once

 private:
  GpuQueue queue_;
  c10::cuda::CUDAStream stream_;
};

}  // namespace piper
