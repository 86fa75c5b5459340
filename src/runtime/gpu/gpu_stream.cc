#include "runtime/gpu/gpu_stream.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/invariant.h"
#include "comm/gpu/check.h"

namespace piper {
namespace {

struct RecordedOnGpu : DeviceEvent {
  GpuEvent event;
  std::vector<AwaitReader> readers;
};

/// libtorch keeps what products of matrices need, for each stream and thread that ever met. Threads end with a run and
/// meet other streams in the next: without this every run would add to it.
void free_workspaces(cudaStream_t stream) {
  for (auto* kept :
       {&at::cuda::cublas_handle_stream_to_workspace(), &at::cuda::cublaslt_handle_stream_to_workspace()}) {
    const std::unique_lock lock(kept->mutex);
    std::erase_if(kept->map, [&](const auto& workspace) { return std::get<1>(workspace.first) == stream; });
  }
}

/// Streams are never destroyed but used again: libtorch keeps memory that belongs to them.
class StreamPool {
 public:
  cudaStream_t take(c10::DeviceIndex gpu) {
    const std::lock_guard lock(mutex_);
    std::vector<cudaStream_t>& free = free_[gpu];
    cudaStream_t stream = nullptr;
    if (free.empty()) {
      const c10::cuda::CUDAGuard on(gpu);
      check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
    } else {
      stream = free.back();
      free.pop_back();
    }
    return stream;
  }
  void give_back(c10::DeviceIndex gpu, cudaStream_t stream) {
    free_workspaces(stream);
    const std::lock_guard lock(mutex_);
    free_[gpu].push_back(stream);
  }

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, std::vector<cudaStream_t>> free_;
};
StreamPool& pool() {
  static StreamPool all;
  return all;
}

}  // namespace

GpuStream::GpuStream(c10::DeviceIndex gpu)
    : queue_{pool().take(gpu), {}}, stream_(c10::cuda::getStreamFromExternal(queue_.stream, gpu)) {}

GpuStream::~GpuStream() {
  pool().give_back(stream_.device_index(), queue_.stream);
}

void GpuStream::wait(const Event& event, uint32_t step) {
  invariant(event.has_ended(step) && event.on_device, "a plan waits for earlier operations");
  const auto& recorded = static_cast<const RecordedOnGpu&>(*event.on_device);
  recorded.event.hold(queue_.stream);
  for (const AwaitReader& reader : recorded.readers) reader(queue_.stream);
}

void GpuStream::launch(std::function<void()> work) {
  const c10::cuda::CUDAStreamGuard on(stream_);
  const OnQueue communicating(queue_);
  work();
}

void GpuStream::record(Event& event, uint32_t step) {
  if (!event.on_device) event.on_device = std::make_unique<RecordedOnGpu>();
  auto& recorded = static_cast<RecordedOnGpu&>(*event.on_device);
  recorded.event.record(queue_.stream);
  recorded.readers = std::exchange(queue_.readers, {});
  event.signal(step);
}

void GpuStream::flush() {
  check_cuda(cudaStreamSynchronize(queue_.stream), "wait for a stream of the GPU");
}

GpuBranch::GpuBranch(c10::DeviceIndex gpu) {
  for (size_t lane = 0; lane < lanes; ++lane)
    lanes_.push_back({c10::cuda::getStreamFromExternal(pool().take(gpu), gpu), std::make_unique<GpuEvent>()});
}

GpuBranch::~GpuBranch() {
  for (const Lane& lane : lanes_) pool().give_back(lane.stream.device_index(), lane.stream.stream());
}

void GpuBranch::mark(size_t number) {
  while (marks_.size() <= number) marks_.push_back(std::make_unique<GpuEvent>());
  marks_[number]->record(c10::cuda::getCurrentCUDAStream().stream());
}

void GpuBranch::launch(size_t lane, size_t after, const std::function<void()>& work) {
  Lane& on = lanes_.at(lane);
  on.used = true;
  marks_.at(after)->hold(on.stream.stream());
  const c10::cuda::CUDAStreamGuard guard(on.stream);
  work();
}

void GpuBranch::join() {
  for (Lane& lane : lanes_) {
    if (!std::exchange(lane.used, false)) continue;
    lane.end->record(lane.stream.stream());
    lane.end->hold(c10::cuda::getCurrentCUDAStream().stream());
  }
}

}  // namespace piper
