#include "runtime/gpu/gpu_processor.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdlib>

#include "comm/gpu/check.h"
#include "comm/gpu/gpu_world.h"
#include "runtime/cuda/optimizer.h"
#include "runtime/gpu/gpu_stream.h"

namespace piper {
namespace {

cudaStream_t current() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

/// Events before and after every operation, against one at the beginning of the step.
class GpuClock : public DeviceClock {
 public:
  explicit GpuClock(size_t ops) : base_(cudaEventDefault) {
    for (size_t i = 0; i < 2 * ops; ++i) events_.push_back(std::make_unique<GpuEvent>(cudaEventDefault));
  }

  void begin() override {
    base_.record(current());
    check_cuda(cudaEventSynchronize(base_.get()), "read the clock of the GPU");
    base_time_ = now();
  }
  void started(int op) override { events_[static_cast<size_t>(2 * op)]->record(current()); }
  void ended(int op) override { events_[static_cast<size_t>(2 * op + 1)]->record(current()); }
  void correct(FlightRecorder& recorder) override {
    for (size_t op = 0; op < events_.size() / 2; ++op)
      recorder.correct(static_cast<int>(op), time(*events_[2 * op]), time(*events_[2 * op + 1]));
  }

 private:
  Nanoseconds time(const GpuEvent& event) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, base_.get(), event.get()), "read the clock of the GPU");
    return base_time_ + static_cast<Nanoseconds>(static_cast<double>(milliseconds) * 1e6);
  }

  GpuEvent base_;
  Nanoseconds base_time_ = 0;
  std::vector<std::unique_ptr<GpuEvent>> events_;  // two by operation
};

class GpuProcessor : public Processor {
 public:
  c10::Device place() const override { return {c10::kCUDA, 0}; }
  std::unique_ptr<Stream> make_stream(const StreamMaking&) override { return std::make_unique<GpuStream>(0); }
  std::unique_ptr<DeviceClock> make_clock(size_t ops) override { return std::make_unique<GpuClock>(ops); }
  bool memory_belongs_to_streams() const override { return true; }
  std::vector<std::unique_ptr<Communicator>> make_world(int devices, LocalOptions options) override {
    return make_gpu_world(devices, options.patience);
  }

  void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                        int64_t count) override {
    cuda::initialize_state(types, kind, weights, state, count, current());
  }
  void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step, double gradient_scale,
              std::byte* weights, const std::byte* gradients, std::byte* state, int64_t count) override {
    cuda::update(settings, types, step, gradient_scale, weights, gradients, state, count, current());
  }
  /// One wait for all of them.
  std::vector<double> read(std::span<const at::Tensor> scalars, std::span<const NumberRange> ranges) override {
    const auto count = static_cast<int64_t>(scalars.size() + ranges.size());
    const at::Tensor there = at::empty({count}, at::TensorOptions(place()).dtype(c10::kDouble));
    int64_t i = 0;
    for (const at::Tensor& scalar : scalars) there.select(0, i++).copy_(scalar);
    for (const NumberRange& range : ranges) {
      const at::Tensor scratch =
          at::empty({cuda::sum_of_squares_scratch(range.count)}, at::TensorOptions(place()).dtype(c10::kByte));
      cuda::sum_of_squares(range.dtype, range.numbers, range.count, there.mutable_data_ptr<double>() + i++,
                           static_cast<std::byte*>(scratch.mutable_data_ptr()), current());
    }
    const at::Tensor here = there.cpu();
    return {here.const_data_ptr<double>(), here.const_data_ptr<double>() + count};
  }
  void finish() override { check_cuda(cudaStreamSynchronize(current()), "wait for the GPU"); }
};

}  // namespace

Result<std::unique_ptr<Processor>> make_gpu_processor(const GpuOptions& options) {
  int gpus = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&gpus); status != cudaSuccess || gpus == 0)
    return error(ErrorCode::E807, {},
                 std::string("there is no GPU that can be used here: ") +
                     (status == cudaSuccess ? "none was found" : cudaGetErrorString(status)))
        .help("--on cpu trains on the processors of this machine");
  if (options.deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // read when it is loaded
  at::globalContext().lazyInitDevice(c10::kCUDA);
  if (options.deterministic) {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
  return std::unique_ptr<Processor>(std::make_unique<GpuProcessor>());
}

}  // namespace piper
