// CUDA graphs: work that is recorded once and put on a stream as a whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>

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

class GraphMaker {
 public:
  virtual ~GraphMaker() = default;
  /// Not `None`: work and seeds can be recorded.
  virtual Graphs graphs() const = 0;
  virtual std::unique_ptr<CudaGraph> make_graph() = 0;
  virtual std::unique_ptr<RecordedSeeds> make_seeds(size_t count) = 0;
};

}  // namespace piper
