// The hardware that computes for a device: the CPU, or a GPU. Several devices may share one.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "runtime/device_side.h"
#include "runtime/graphs.h"
#include "runtime/kernels.h"
#include "runtime/stream/stream.h"
#include "runtime/world_maker.h"

namespace piper {

/// How a stream's threads are set up, and who is told when something fails on one.
struct StreamMaking {
  std::function<void(const std::function<void()>&)> on_thread;
  std::function<void(std::exception_ptr)> failed;
};

/// Lets the computations and updates of all devices run one at a time, so that each can be measured alone. Devices may
/// share a GPU.
struct Turns {
  std::atomic<bool> taken = true;  // false: they run concurrently
  /// On a GPU: the kernels of an operation start only when the host has launched all of them, so that launch time is
  /// not measured.
  std::atomic<bool> held = false;
  std::mutex one;
};

/// Divided by what it serves: optimizer and scalars (Kernels), CUDA graphs (GraphMaker), communication (WorldMaker),
/// and streams and threads here.
class Processor : public Kernels, public GraphMaker, public WorldMaker {
 public:
  /// The torch device of its tensors.
  virtual c10::Device device() const = 0;
  virtual std::unique_ptr<Stream> make_stream(const StreamMaking& making) = 0;
  /// Of a device with so many operations.
  virtual std::unique_ptr<DeviceSide> make_side(size_t ops) = 0;
  /// Memory belongs to the stream on which it was allocated, and is reused there as soon as it is freed: before, that
  /// stream has to wait for the other streams that used it.
  virtual bool memory_belongs_to_streams() const = 0;
  /// Makes the calling thread use it.
  virtual void enter_thread() = 0;
  /// Lets libraries allocate what they keep for a stream and thread, so that it is not measured.
  virtual void warm_up() = 0;
  /// Waits for what the calling thread has enqueued outside of the plan's streams.
  virtual void finish() = 0;
};

/// The CPU: streams are threads.
Processor& host_processor();

}  // namespace piper
