// What computes for a device: the CPU, or a GPU. Several devices may share one.
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

/// What a thread is made ready with, and who hears of what goes wrong on it.
struct StreamMaking {
  std::function<void(const std::function<void()>&)> on_thread;
  std::function<void(std::exception_ptr)> failed;
};

/// Shared by devices whose computations and updates run one at a time, each ended before the next begins: so that each
/// can be measured alone. Several may share a GPU.
struct Turns {
  std::atomic<bool> taken = true;  // otherwise they run as ever
  /// On a GPU: kernels are held back until the host has launched all of an operation, so that the time it takes to
  /// launch is not measured.
  std::atomic<bool> held = false;
  std::mutex one;
};

/// Divided by what it serves: optimizer and scalars, CUDA graphs, communication; and here streams and threads.
class Processor : public Kernels, public GraphMaker, public WorldMaker {
 public:
  /// Where its tensors are.
  virtual c10::Device place() const = 0;
  virtual std::unique_ptr<Stream> make_stream(const StreamMaking& making) = 0;
  /// None: streams are threads, with clocks and memory of their own.
  virtual std::unique_ptr<DeviceSide> make_side(size_t ops) = 0;
  /// Memory belongs to the stream on which it was taken, and may be used there again as soon as it is free: that stream
  /// has to wait for the others that used it.
  virtual bool memory_belongs_to_streams() const = 0;
  /// The calling thread will use it.
  virtual void enter_thread() = 0;
  /// What libraries take for themselves, once, on the stream and the thread that compute: no part of what is measured.
  virtual void warm_up() = 0;
  /// Everything that the calling thread has put there outside of streams has been done.
  virtual void finish() = 0;
};

/// Of this machine: streams are threads.
Processor& host_processor();

}  // namespace piper
