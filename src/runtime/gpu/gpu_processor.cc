#include "runtime/gpu/gpu_processor.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/invariant.h"
#include "comm/gpu/check.h"
#include "comm/gpu/gpu_world.h"
#include "runtime/cuda/graph_fills.h"
#include "runtime/cuda/hold.h"
#include "runtime/cuda/optimizer.h"
#include "runtime/gpu/gpu_operators.h"
#include "runtime/gpu/gpu_stream.h"
#include "runtime/gpu/join_by_nccl.h"
#include "runtime/gpu/replay_memory.h"

namespace piper {
namespace {

std::atomic<int64_t> graphs_launched = 0, unrecorded = 0, misses_seen = 0;

/// Of the driver's interface: the runtime's has nothing like it.
using WriteValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
WriteValue write_value() {
  static const auto found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult status{};
    check_cuda(cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &function, 12000, cudaEnableDefault, &status),
               "find a function of the driver");
    return reinterpret_cast<WriteValue>(function);
  }();
  return found;
}

cudaStream_t current() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

/// The clock: events before and after every operation, against one at the beginning of the step. Of operations in one
/// graph only the beginning and the end are known, unless `times_in_graphs`.
class GpuSide : public DeviceSide {
 public:
  GpuSide(size_t ops, const GpuOptions& options)
      : graphs_(options.graphs != Graphs::None),
        times_in_graphs_(options.times_in_graphs),
        base_(cudaEventDefault),
        spans_(ops),
        issued_(ops),
        noted_by_(std::make_unique<std::atomic<OpId>[]>(ops)),
        turns_(options.turns),
        host_(ops) {
    for (size_t i = 0; i < 2 * ops; ++i) events_.push_back(std::make_unique<GpuEvent>(cudaEventDefault));
    if (options.arenas) memory_ = std::make_unique<ReplayMemory>(ops);
    if (graphs_) branch_ = std::make_unique<GpuBranch>(static_cast<c10::DeviceIndex>(options.gpu));
    check_cuda(cudaMallocHost(reinterpret_cast<void**>(&done_), ops * sizeof(uint32_t)),
               "take memory that the GPU can write");
    std::fill_n(done_, ops, 0);
  }
  ~GpuSide() override { cudaFreeHost(done_); }

  bool has_clock() const override { return true; }

  void begin(int64_t step) override {
    if (memory_) memory_->begin_step(step);
    step_ = static_cast<uint32_t>(step) + 1;
    base_.record(current());
    check_cuda(cudaEventSynchronize(base_.get()), "read the clock of the GPU");
    base_time_ = now();
  }
  void started(OpId op) override {
    const bool recording = is_recording();
    HostTime& time = host_[op];
    if (!recording && held()) cuda::hold(time.took * 3 / 2, current());
    time.started = now();
    if (!recording || times_in_graphs_) {
      spans_[op] = only(op);
      mark(begin_of(op), recording);
    }
    if (memory_) memory_->enter(op);
  }
  void ended(OpId op) override {
    if (memory_) memory_->leave();
    const bool recording = is_recording();
    if (!recording || times_in_graphs_) mark(end_of(op), recording);
    if (!recording) note_end(only(op));
    HostTime& time = host_[op];
    if (!held()) time.took = now() - time.started;  // otherwise it may have waited too
  }
  void launch(IdRange<OpId> ops, CudaGraph& work) override {
    if (!times_in_graphs_) {
      mark(begin_of(ops.first), false);
      for (const OpId op : ops) spans_[op] = ops;
    }
    work.launch();
    if (!times_in_graphs_) mark(end_of(last_of(ops)), false);
    note_end(ops);
  }
  bool has_ended(OpId op) const override {
    const OpId by = noted_by_[op.index()].load();
    return by.valid() && is_done(by);
  }
  void end(FlightRecorder& recorder) override {
    if (memory_) {
      memory_->end_step();
      misses_seen += memory_->arena_misses() - std::exchange(arena_misses_, memory_->arena_misses());
    }
    IdRange<OpId> span;
    Nanoseconds begin = 0, end = 0;
    for (const OpId op : spans_.ids()) {
      if (!spans_[op].first.valid()) continue;  // it has not run yet
      if (spans_[op] != span) {
        span = spans_[op];
        begin = time(*events_[begin_of(span.first)]);
        end = time(*events_[end_of(last_of(span))]);
      }
      const auto count = static_cast<Nanoseconds>(span.size());
      const Nanoseconds at = op.value - span.first.value;
      recorder.correct(op, begin + (end - begin) * at / count, begin + (end - begin) * (at + 1) / count);
    }
  }
  /// After what cannot be mended, nothing that the GPU would do later has been done: the first that was put in and has
  /// not ended it is.
  OpId culprit(OpId op) override {
    // what cannot be mended is said by every call; nothing may be waited for, since other GPUs may have to be told
    // first
    if (const cudaError_t state = cudaStreamQuery(current()); state == cudaSuccess || state == cudaErrorNotReady)
      return op;
    for (const OpId other : issued_.ids())
      if (issued_[other] == step_ && !is_done(other)) return other;
    return op;
  }
  ArenaUse arena() const override {
    if (!memory_) return {};
    return {memory_->arena_bytes(), memory_->alive_bytes(), memory_->arena_misses()};
  }
  Branch* branch() override { return branch_.get(); }

 private:
  /// Of the last step that was not held.
  struct HostTime {
    Nanoseconds started = 0, took = 0;
  };
  bool held() const { return turns_ && turns_->held; }
  bool is_done(OpId op) const { return std::atomic_ref(done_[op.index()]).load() == step_; }
  bool is_recording() const {
    if (!graphs_) return false;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(current(), &status), "ask whether a graph is recorded");
    return status == cudaStreamCaptureStatusActive;
  }
  static IdRange<OpId> only(OpId op) { return {op, OpId(op.value + 1)}; }
  static OpId last_of(IdRange<OpId> ops) { return OpId(ops.past.value - 1); }
  static size_t begin_of(OpId op) { return 2 * op.index(); }  // among the events
  static size_t end_of(OpId op) { return 2 * op.index() + 1; }
  /// In a graph: whenever it is launched.
  void mark(size_t event, bool recording) {
    const unsigned flags = recording ? cudaEventRecordExternal : cudaEventRecordDefault;
    check_cuda(cudaEventRecordWithFlags(events_[event]->get(), current(), flags), "record an event");
  }
  /// The operation, or the graph that begins with it, ends when this has been written.
  void note_end(IdRange<OpId> ops) {
    issued_[ops.first] = step_;
    for (const OpId op : ops) noted_by_[op.index()] = ops.first;
    if (write_value()(current(), reinterpret_cast<CUdeviceptr>(done_ + ops.first.index()), step_, 0) != CUDA_SUCCESS)
      check_cuda(cudaErrorUnknown, "note what has been done");
  }

  Nanoseconds time(const GpuEvent& event) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, base_.get(), event.get()), "read the clock of the GPU");
    return base_time_ + static_cast<Nanoseconds>(static_cast<double>(milliseconds) * 1e6);
  }

  const bool graphs_, times_in_graphs_;
  GpuEvent base_;
  Nanoseconds base_time_ = 0;
  std::vector<std::unique_ptr<GpuEvent>> events_;  // two by operation
  Table<OpId, IdRange<OpId>> spans_;               // with whose start and end its times are known
  uint32_t* done_ = nullptr;                       // by operation: the last step in which it ended, from 1
  Table<OpId, uint32_t> issued_;                   // the same: was put in
  std::unique_ptr<std::atomic<OpId>[]> noted_by_;  // by operation: whose end says that it has ended
  std::atomic<uint32_t> step_ = 0;
  const Turns* turns_;
  Table<OpId, HostTime> host_;
  std::unique_ptr<ReplayMemory> memory_;
  std::unique_ptr<GpuBranch> branch_;  // where there are graphs: otherwise the host is what all wait for
  int64_t arena_misses_ = 0;           // that were counted
};

/// A CUDA graph.
class GpuGraph : public CudaGraph {
 public:
  ~GpuGraph() override {
    if (graph_) cudaGraphExecDestroy(graph_);
  }
  bool ready() const override {
    const ReplayMemory* memory = ReplayMemory::current();
    return memory && memory->serves();
  }
  bool record(const std::function<void()>& work) override {
    ReplayMemory& memory = *ReplayMemory::current();
    const size_t mark = memory.mark();
    const int64_t arena_misses = memory.arena_misses();
    const cudaStream_t stream = current();
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "record a graph");
    bool fine = true;
    try {
      work();
    } catch (const std::exception&) {  // what waits for the GPU, for example, cannot be recorded
      fine = false;
    }
    cudaGraph_t graph = nullptr;
    fine &= cudaStreamEndCapture(stream, &graph) == cudaSuccess && memory.arena_misses() == arena_misses;
    if (fine) cuda::fill_by_kernels(graph);
    fine = fine && cudaGraphInstantiate(&graph_, graph, 0) == cudaSuccess;
    if (graph) cudaGraphDestroy(graph);
    if (fine) return true;
    ++unrecorded;
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

/// Kernels read their seeds from memory.
class GpuSeeds : public RecordedSeeds {
 public:
  explicit GpuSeeds(size_t count) : bytes_(count * sizeof(uint64_t)) {
    const ReplayMemory::Aside aside;
    const c10::DeviceIndex gpu = c10::cuda::current_device();
    const auto options = at::TensorOptions().device(c10::kCUDA, gpu).dtype(c10::kLong);
    there_ = at::zeros({static_cast<int64_t>(count)}, options);
    check_cuda(cudaMallocHost(&here_, bytes_), "take memory that the GPU can read");
  }
  ~GpuSeeds() override { cudaFreeHost(here_); }
  const at::Tensor& words() const override { return there_; }
  void set(std::span<const uint64_t> seeds) override {
    std::memcpy(here_, seeds.data(), bytes_);
    check_cuda(cudaMemcpyAsync(there_.mutable_data_ptr(), here_, bytes_, cudaMemcpyHostToDevice, current()),
               "copy seeds to the GPU");
  }

 private:
  const size_t bytes_;
  at::Tensor there_;
  void* here_ = nullptr;
};

/// Nobody hears of memory.
struct Uncounted : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t, size_t, size_t, c10::Device) override {}
  bool memoryProfilingEnabled() const override { return false; }
};

class GpuProcessor : public Processor {
 public:
  explicit GpuProcessor(const GpuOptions& options)
      : options_(options), gpu_(static_cast<c10::DeviceIndex>(options.gpu)) {}

  c10::Device device() const override { return {c10::kCUDA, gpu_}; }
  std::unique_ptr<Stream> make_stream(const StreamMaking&) override { return std::make_unique<GpuStream>(gpu_); }
  std::unique_ptr<DeviceSide> make_side(size_t ops) override { return std::make_unique<GpuSide>(ops, options_); }
  Graphs graphs() const override { return options_.graphs; }
  std::unique_ptr<CudaGraph> make_graph() override { return std::make_unique<GpuGraph>(); }
  std::unique_ptr<RecordedSeeds> make_seeds(size_t count) override { return std::make_unique<GpuSeeds>(count); }
  bool memory_belongs_to_streams() const override { return true; }
  void warm_up() override {
    const c10::DebugInfoGuard uncounted(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Uncounted>());
    const ReplayMemory::Aside aside;
    at::cuda::getCurrentCUDABlasHandle();
    at::cuda::getCUDABlasLtWorkspace();
  }
  std::vector<std::unique_ptr<Communicator>> make_world(int devices, LocalOptions options) override {
    return make_gpu_world(devices, options.timeout);
  }
  std::vector<std::unique_ptr<Communicator>> join(std::vector<std::unique_ptr<Communicator>> host_communicators,
                                                  std::chrono::milliseconds timeout) override {
    return join_by_nccl(std::move(host_communicators), timeout);
  }
  void enter_thread() override { c10::cuda::set_device(gpu_); }

  void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                        int64_t count) override {
    cuda::initialize_state(types, kind, weights, state, count, current());
  }
  void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step, const GradientScale& scale,
              std::byte* weights, const std::byte* gradients, std::byte* state, int64_t count,
              ElementPart part) override {
    cuda::update(settings, types, step, scale, weights, gradients, state, count, part, current());
  }
  /// One wait for all of them.
  std::vector<double> read(std::span<const at::Tensor> scalars, std::span<const ElementSpan> ranges) override {
    const auto count = static_cast<int64_t>(scalars.size() + ranges.size());
    const at::Tensor there = at::empty({count}, at::TensorOptions(device()).dtype(c10::kDouble));
    int64_t i = 0;
    for (const at::Tensor& scalar : scalars) there.select(0, i++).copy_(scalar);
    for (const ElementSpan& range : ranges) {
      const at::Tensor scratch =
          at::empty({cuda::sum_of_squares_scratch(range.count)}, at::TensorOptions(device()).dtype(c10::kByte));
      cuda::sum_of_squares(range.dtype, range.elements, range.count, there.mutable_data_ptr<double>() + i++,
                           static_cast<std::byte*>(scratch.mutable_data_ptr()), current());
    }
    const at::Tensor here = there.cpu();
    return {here.const_data_ptr<double>(), here.const_data_ptr<double>() + count};
  }
  void finish() override { check_cuda(cudaStreamSynchronize(current()), "wait for the GPU"); }

 private:
  const GpuOptions options_;
  c10::DeviceIndex gpu_;
};

}  // namespace

GpuCounts gpu_counts() {
  return {graphs_launched, unrecorded, misses_seen};
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

std::string current_gpu() {
  int gpu = 0;
  cudaDeviceProp properties;
  if (cudaGetDevice(&gpu) != cudaSuccess || cudaGetDeviceProperties(&properties, gpu) != cudaSuccess) return {};
  return fmt::format("{} {}.{}", properties.name, properties.major, properties.minor);
}

Result<std::unique_ptr<Processor>> make_gpu_processor(const GpuOptions& options) {
  int gpus = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&gpus); status != cudaSuccess || gpus == 0)
    return error(ErrorCode::E807, {},
                 std::string("there is no GPU that can be used here: ") +
                     (status == cudaSuccess ? "none was found" : cudaGetErrorString(status)))
        .help("--on cpu (in Python: on=\"cpu\") trains on the CPU");
  if (options.deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // read when it is loaded
  at::globalContext().lazyInitDevice(c10::kCUDA);
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(options.gpu));
  provide_gpu_operators();
  if (options.deterministic) {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
  invariant(options.arenas || options.graphs == Graphs::None, "graphs need memory at fixed places");
  if (options.arenas) install_replay_allocator();
  return std::unique_ptr<Processor>(std::make_unique<GpuProcessor>(options));
}

}  // namespace piper
