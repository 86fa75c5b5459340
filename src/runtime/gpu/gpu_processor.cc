#include "runtime/gpu/gpu_processor.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <cstdlib>
#include <utility>

#include "comm/gpu/check.h"
#include "comm/gpu/gpu_world.h"
#include "runtime/cuda/hold.h"
#include "runtime/cuda/optimizer.h"
#include "runtime/gpu/gpu_stream.h"
#include "runtime/gpu/join_by_nccl.h"
#include "runtime/gpu/replay_memory.h"

namespace piper {
namespace {

std::atomic<int64_t> graphs_launched = 0, strays_seen = 0;

cudaStream_t current() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

/// The clock: events before and after every operation, against one at the beginning of the step.
class GpuSide : public DeviceSide {
 public:
  GpuSide(size_t ops, bool replays, const Turns* turns) : base_(cudaEventDefault), turns_(turns), host_(ops) {
    for (size_t i = 0; i < 2 * ops; ++i) events_.push_back(std::make_unique<GpuEvent>(cudaEventDefault));
    if (replays) memory_ = std::make_unique<ReplayMemory>(ops);
  }

  void begin(int64_t step) override {
    if (memory_) memory_->begin_step(step);
    base_.record(current());
    check_cuda(cudaEventSynchronize(base_.get()), "read the clock of the GPU");
    base_time_ = now();
  }
  void started(int op) override {
    HostTime& time = host_[static_cast<size_t>(op)];
    if (held()) cuda::hold(time.took * 3 / 2, current());
    time.started = now();
    events_[static_cast<size_t>(2 * op)]->record(current());
    if (memory_) memory_->enter(op);
  }
  void ended(int op) override {
    if (memory_) memory_->leave();
    events_[static_cast<size_t>(2 * op + 1)]->record(current());
    HostTime& time = host_[static_cast<size_t>(op)];
    if (!held()) time.took = now() - time.started;  // otherwise it may have waited too
  }
  bool has_ended(int op) const override {
    return cudaEventQuery(events_[static_cast<size_t>(2 * op + 1)]->get()) != cudaErrorNotReady;
  }
  void end(FlightRecorder& recorder) override {
    if (memory_) {
      memory_->end_step();
      strays_seen += memory_->strays() - std::exchange(strays_, memory_->strays());
    }
    for (size_t op = 0; op < events_.size() / 2; ++op)
      recorder.correct(static_cast<int>(op), time(*events_[2 * op]), time(*events_[2 * op + 1]));
  }

 private:
  /// Of the last step that was not held.
  struct HostTime {
    Nanoseconds started = 0, took = 0;
  };
  bool held() const { return turns_ && turns_->held; }
  Nanoseconds time(const GpuEvent& event) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, base_.get(), event.get()), "read the clock of the GPU");
    return base_time_ + static_cast<Nanoseconds>(static_cast<double>(milliseconds) * 1e6);
  }

  GpuEvent base_;
  Nanoseconds base_time_ = 0;
  std::vector<std::unique_ptr<GpuEvent>> events_;  // two by operation
  const Turns* turns_;
  std::vector<HostTime> host_;  // by operation
  std::unique_ptr<ReplayMemory> memory_;
  int64_t strays_ = 0;  // that were counted
};

/// A graph of CUDA.
class GpuRecordedWork : public RecordedWork {
 public:
  ~GpuRecordedWork() override {
    if (graph_) cudaGraphExecDestroy(graph_);
  }
  bool ready() const override {
    const ReplayMemory* memory = ReplayMemory::current();
    return memory && memory->serves();
  }
  bool record(const std::function<void()>& work) override {
    ReplayMemory& memory = *ReplayMemory::current();
    const size_t mark = memory.mark();
    const int64_t strays = memory.strays();
    const cudaStream_t stream = current();
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "record a graph");
    bool fine = true;
    try {
      work();
    } catch (const std::exception&) {  // what waits for the GPU, for example, cannot be recorded
      fine = false;
    }
    cudaGraph_t graph = nullptr;
    fine &= cudaStreamEndCapture(stream, &graph) == cudaSuccess && memory.strays() == strays;
    fine = fine && cudaGraphInstantiate(&graph_, graph, 0) == cudaSuccess;
    if (graph) cudaGraphDestroy(graph);
    if (fine) return true;
    static_cast<void>(cudaGetLastError());
    memory.go_back(mark);
    return false;
  }
  void launch() override {
    check_cuda(cudaGraphLaunch(graph_, current()), "launch a graph");
    ++graphs_launched;
  }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

class GpuProcessor : public Processor {
 public:
  explicit GpuProcessor(const GpuOptions& options)
      : graphs_(options.graphs), gpu_(static_cast<c10::DeviceIndex>(options.gpu)), turns_(options.turns) {}

  c10::Device place() const override { return {c10::kCUDA, gpu_}; }
  std::unique_ptr<Stream> make_stream(const StreamMaking&) override { return std::make_unique<GpuStream>(gpu_); }
  std::unique_ptr<DeviceSide> make_side(size_t ops) override { return std::make_unique<GpuSide>(ops, graphs_, turns_); }
  std::unique_ptr<RecordedWork> make_recorded() override {
    return graphs_ ? std::make_unique<GpuRecordedWork>() : nullptr;
  }
  bool memory_belongs_to_streams() const override { return true; }
  std::vector<std::unique_ptr<Communicator>> make_world(int devices, LocalOptions options) override {
    return make_gpu_world(devices, options.patience);
  }
  std::vector<std::unique_ptr<Communicator>> join(std::vector<std::unique_ptr<Communicator>> wires,
                                                  std::chrono::milliseconds patience) override {
    return join_by_nccl(std::move(wires), patience);
  }
  void enter_thread() override { c10::cuda::set_device(gpu_); }

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

 private:
  bool graphs_;
  c10::DeviceIndex gpu_;
  const Turns* turns_;
};

}  // namespace

GpuCounts gpu_counts() {
  return {graphs_launched, strays_seen};
}

std::vector<std::string> visible_gpus() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess) return {};
  std::vector<std::string> names;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    cudaDeviceProp properties;
    check_cuda(cudaGetDeviceProperties(&properties, gpu), "ask a GPU for its name");
    names.emplace_back(properties.uuid.bytes, sizeof properties.uuid.bytes);
  }
  return names;
}

Result<std::unique_ptr<Processor>> make_gpu_processor(const GpuOptions& options) {
  int gpus = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&gpus); status != cudaSuccess || gpus == 0)
    return error(ErrorCode::E807, {},
                 std::string("there is no GPU that can be used here: ") +
                     (status == cudaSuccess ? "none was found" : cudaGetErrorString(status)))
        .help("--on cpu trains on the processors of this machine");
  if (options.deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // read when it is loaded
  at::globalContext().lazyInitDevice(c10::kCUDA);
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(options.gpu));
  if (options.deterministic) {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
  if (options.graphs) install_replay_allocator();
  return std::unique_ptr<Processor>(std::make_unique<GpuProcessor>(options));
}

}  // namespace piper
