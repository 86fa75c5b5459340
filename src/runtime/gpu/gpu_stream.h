// A stream of a GPU. Work runs at once on the calling thread, one for each device, and puts kernels and copies there.
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <vector>

#include "comm/gpu/queue.h"
#include "runtime/stream/branch.h"
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

/// Side streams of the CUDA stream that the calling thread uses. In a graph that is recorded there lanes become
/// branches.
class GpuBranch : public Branch {
 public:
  explicit GpuBranch(c10::DeviceIndex gpu);
  ~GpuBranch() override;

  void mark(size_t number) override;
  void launch(size_t lane, size_t after, const std::function<void()>& work) override;
  void join() override;

 private:
  struct Lane {
    c10::cuda::CUDAStream stream;
    std::unique_ptr<GpuEvent> end;
    bool used = false;  // since it was joined
  };
  std::vector<Lane> lanes_;
  std::vector<std::unique_ptr<GpuEvent>> marks_;
};

}  // namespace piper
