// CUDA graphs: work that is recorded once and then launched as a whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>

namespace piper {

class CudaGraph {
 public:
  virtual ~CudaGraph() = default;
  /// Whether allocations have the addresses that they will have in all later steps.
  virtual bool ready() const = 0;
  /// Records what `work` enqueues, without running it. False: it cannot be recorded, and nothing was.
  virtual bool record(const std::function<void()>& work) = 0;
  virtual void launch() = 0;
};

/// Seeds of random numbers in a graph, which reads them when it runs.
class RecordedSeeds {
 public:
  virtual ~RecordedSeeds() = default;
  /// The memory that the graph reads.
  virtual const at::Tensor& words() const = 0;
  /// Their values for what is enqueued on the calling thread's stream from now on.
  virtual void set(std::span<const uint64_t> seeds) = 0;
};

/// What becomes one graph: nothing, a chunk, or consecutive chunks of a step.
enum class Graphs { None, Chunk, Step };

class GraphMaker {
 public:
  virtual ~GraphMaker() = default;
  /// Unless `None`, graphs and seeds can be made.
  virtual Graphs graphs() const = 0;
  virtual std::unique_ptr<CudaGraph> make_graph() = 0;
  virtual std::unique_ptr<RecordedSeeds> make_seeds(size_t count) = 0;
};

}  // namespace piper
