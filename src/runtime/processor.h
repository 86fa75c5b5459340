// What computes for a device: the processor of this machine, or a GPU. Several devices may share one.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "comm/local/local_world.h"
#include "runtime/optimizer/optimizer.h"
#include "runtime/stream/branch.h"
#include "runtime/stream/flight_recorder.h"
#include "runtime/stream/stream.h"

namespace piper {

/// Work that is put on a stream as a whole, after it was recorded once.
class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  /// Memory is where it will be in every later step.
  virtual bool ready() const = 0;
  /// Runs it without doing it. False: it cannot be recorded, and nothing has happened.
  virtual bool record(const std::function<void()>& work) = 0;
  virtual void launch() = 0;
};

/// Memory with fixed places.
struct ArenaUse {
  int64_t bytes = 0;         // of all arenas of the device; 0: it has none
  int64_t alive = 0;         // the most that was alive at once of what is in them
  int64_t arena_misses = 0;  // pieces that were not expected and came from elsewhere
};

/// What a device whose streams are no threads does around its operations: it keeps time, which is known after the step,
/// and knows which operation takes memory.
class DeviceSide {
 public:
  virtual ~DeviceSide() = default;
  /// The streams are idle.
  virtual void begin(int64_t step) = 0;
  /// On the stream that the calling thread uses now.
  virtual void started(int op) = 0;
  virtual void ended(int op) = 0;
  /// Puts in recorded work, which is these operations.
  virtual void launch(int first, int last, CudaGraph& work) = 0;
  /// Of an operation whose work has been put in: it has been done. Asked by another thread.
  virtual bool has_ended(int op) const = 0;
  /// Everything has ended: corrects what the recorder has of the step.
  virtual void end(FlightRecorder& recorder) = 0;
  /// Something failed while `op` was put in, or after everything was (-1): the operation that failed, since work fails
  /// when it is done. -1: none of this device.
  virtual int culprit(int op) = 0;
  virtual ArenaUse arena() const = 0;
  /// For computations of the device; may be none.
  virtual Branch* branch() = 0;
};

/// Random numbers in recorded work: seeds are read when it runs.
class RecordedSeeds {
 public:
  virtual ~RecordedSeeds() = default;
  /// Where they are read.
  virtual const at::Tensor& words() const = 0;
  /// What they are in work that is put on the calling thread's stream from now on.
  virtual void set(std::span<const uint64_t> seeds) = 0;
};

/// What is recorded as one piece of work.
enum class Graphs { None, Chunk, Step };

/// What a thread is made ready with, and who hears of what goes wrong on it.
struct StreamMaking {
  std::function<void(const std::function<void()>&)> on_thread;
  std::function<void(std::exception_ptr)> failed;
};

/// Numbers whose squares are summed up.
struct NumberRange {
  DType dtype = DType::Float32;
  const std::byte* numbers = nullptr;
  int64_t count = 0;
};

/// Shared by devices whose computations and updates run one at a time, each ended before the next begins: so that each
/// can be measured alone. Several may share a GPU.
struct Turns {
  std::atomic<bool> taken = true;  // otherwise they run as ever
  /// On a GPU: its kernels wait until the host has put all of an operation in, which takes as long as it took in turns
  /// that were not held. So its time is the GPU's, whatever the host takes.
  std::atomic<bool> held = false;
  std::mutex one;
};

class Processor {
 public:
  virtual ~Processor() = default;

  /// Where its tensors are.
  virtual c10::Device place() const = 0;
  virtual std::unique_ptr<Stream> make_stream(const StreamMaking& making) = 0;
  /// None: streams are threads, with clocks and memory of their own.
  virtual std::unique_ptr<DeviceSide> make_side(size_t ops) = 0;
  /// Not `None`: work and seeds can be recorded.
  virtual Graphs graphs() const = 0;
  virtual std::unique_ptr<CudaGraph> make_graph() = 0;
  virtual std::unique_ptr<RecordedSeeds> make_seeds(size_t count) = 0;
  /// Memory belongs to the stream on which it was taken, and may be used there again as soon as it is free: that stream
  /// has to wait for the others that used it.
  virtual bool memory_belongs_to_streams() const = 0;
  /// Communicators of devices that all are here.
  virtual std::vector<std::unique_ptr<Communicator>> make_world(int devices, LocalOptions options) = 0;
  /// Communicators of devices whose others are in other processes. `host_communicators` carry messages of the host;
  /// `timeout`: how long the others may take to come.
  virtual std::vector<std::unique_ptr<Communicator>> join(std::vector<std::unique_ptr<Communicator>> host_communicators,
                                                          std::chrono::milliseconds timeout) = 0;
  /// The calling thread will use it.
  virtual void enter_thread() = 0;

  /// What libraries take for themselves, once, on the stream and the thread that compute: no part of what is measured.
  virtual void warm_up() = 0;

  // On memory of the place, and on the stream that the calling thread uses now.
  virtual void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                                int64_t count) = 0;
  virtual void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step, double gradient_scale,
                      std::byte* weights, const std::byte* gradients, std::byte* state, int64_t count) = 0;
  /// Every scalar as it is, then the sum of squares of every range: the same bits everywhere.
  virtual std::vector<double> read(std::span<const at::Tensor> scalars, std::span<const NumberRange> ranges) = 0;
  /// Everything that the calling thread has put there outside of streams has been done.
  virtual void finish() = 0;
};

/// Of this machine: streams are threads.
Processor& host_processor();

}  // namespace piper
