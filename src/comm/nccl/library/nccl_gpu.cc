// What a GPU does around calls of NCCL.
#include <map>
#include <mutex>

#include "comm/gpu/check.h"
#include "comm/gpu/kernels.h"
#include "comm/gpu/queue.h"
#include "comm/nccl/library/nccl_library.h"

namespace piper {
namespace {

class Gpu : public NcclDevice {
 public:
  ~Gpu() override {
    for (const auto& [stream, memory] : scratch_) cudaFree(memory.at);
  }

  NcclCalls::Stream stream() override { return current_queue().stream; }

  /// Grows in the first step only: every step asks for the same.
  std::byte* scratch(size_t bytes) override {
    const std::lock_guard lock(mutex_);
    Scratch& memory = scratch_[current_queue().stream];
    if (bytes <= memory.bytes) return memory.at;
    check_cuda(cudaFree(memory.at), "give memory back");  // waits for whoever uses it
    memory = {};
    void* made = nullptr;
    check_cuda(cudaMalloc(&made, bytes), "take memory for parts of exchanges");
    memory = {static_cast<std::byte*>(made), bytes};
    return memory.at;
  }

  void add(const std::byte* from, std::byte* to, size_t bytes, DataType dtype) override {
    const std::byte* const one[] = {from};
    gpu::add_sum(one, to, bytes, dtype, current_queue().stream);
  }

  void copy_rows(const std::byte* from, size_t from_pitch, std::byte* to, size_t to_pitch, size_t width,
                 size_t rows) override {
    check_cuda(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDeviceToDevice,
                                 current_queue().stream),
               "copy parts of values");
  }

 private:
  struct Scratch {
    std::byte* at = nullptr;
    size_t bytes = 0;
  };
  std::mutex mutex_;
  std::map<cudaStream_t, Scratch> scratch_;
};

}  // namespace

std::unique_ptr<NcclDevice> make_nccl_device() {
  return std::make_unique<Gpu>();
}

}  // namespace piper
