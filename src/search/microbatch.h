// What one microbatch costs on the devices of one pipeline rank, by the compiler's own functions: the DAG of one
// microbatch, with the time and memory of every node.
#pragma once

#include <memory>
#include <mutex>

#include "compile/compile.h"
#include "search/space.h"

namespace piper {

/// A computation, or a communication between computations.
struct MicrobatchNode {
  int instance = 0;          // of the scope that stages are made of
  bool recomputes = false;   // forward again, before backward
  std::optional<Axis> axis;  // of a communication: among whom
  CollectiveKind kind = CollectiveKind::AllReduce;
  int64_t bytes = 0;
  std::vector<int> after;            // earlier nodes of the same pass
  std::vector<int> input_after;      // of backward: those that its first half waits for
  std::vector<double> seconds = {};  // of a computation, by kind of device
};

/// What ZeRO divides is whole on a device while a chunk uses it: by what is divided (no gradients; gradients;
/// parameters too), without and with the experts that each device has of its own.
using WholeBytes = std::array<int64_t, 6>;
size_t whole_index(int zero, bool experts);

/// What an instance keeps and holds on one device, in bytes or elements.
struct InstanceMemory {
  int64_t kept = 0;                // by forward, for backward
  int64_t kept_for_weights = 0;    // the part of it that the gradients of weights need
  int64_t handed = 0;              // by the first half of backward to the second
  int64_t recomputed = 0;          // besides, after recomputation, less what was freed before
  WholeBytes backward = {};        // besides, while its backward runs: temporaries, less what was freed before
  WholeBytes read = {};            // of parameters, while a chunk runs forward or the first half of backward, at most
  WholeBytes made = {};            // of gradients, while a chunk runs the second half
  WholeBytes both = {};            // while a chunk runs backward
  int64_t forward = 0;             // temporaries of forward, most of one computation
  int64_t dense = 0, experts = 0;  // elements of parameters: replicated among all devices of a rank; expert by expert
  int64_t undivided = 0;           // of the dense ones: not divided by tensor parallelism
  int64_t sent = 0;                // the smallest value that goes on to later instances
};

struct Microbatch {
  std::vector<MicrobatchNode> forward, backward;  // backward with recomputation, in an order that `after` allows
  std::vector<std::vector<int>> forward_of, backward_of;  // nodes by instance
  std::vector<std::vector<double>> input;  // by kind of device and node of backward: what others wait for; -1: nothing
  std::vector<std::vector<double>> weights;  // by kind of device and instance: the other half
  std::vector<InstanceMemory> memory;        // by instance
  int64_t largest_parameter = 0;             // elements
};

/// The devices of one pipeline rank with the form of a candidate: what microbatches of all sizes have in common. Any
/// thread may ask; the problem's model, cluster and costs outlive it.
class RankDag {
 public:
  /// Refused where the compiler refuses it. `model` has the form that the candidate needs, whatever its batch.
  static Result<std::shared_ptr<RankDag>> make(const ModelGraph& model, const ModelFacts& facts,
                                               const Candidate& candidate, const Cluster& cluster,
                                               const std::optional<CostTable>& costs);

  /// A microbatch of so many samples on each device.
  Result<Microbatch> microbatch(int64_t samples);
  /// Seconds of all its computations on the fastest kind of device, whichever way backward runs.
  Result<double> least_seconds(int64_t samples);

 private:
  RankDag(std::shared_ptr<ModelGraph> model, TrainingDag dag, const ModelFacts& facts, const Candidate& candidate,
          const Cluster& cluster, const std::optional<CostTable>& costs);
  /// Computations that take equally long, whatever the samples.
  struct Alike {
    NodeId node;
    int count = 0;
  };
  std::vector<Alike> alike() const;
  Result<double> computing(size_t kind);

  std::mutex mutex_;                   // the batch of the model changes from call to call
  std::shared_ptr<ModelGraph> model_;  // the DAG's own
  TrainingDag dag_;
  const ModelFacts& facts_;
  bool whole_instances_;  // are recomputed at once
  int ep_;
  Axis other_axis_;  // than tp, along which devices communicate
  const Cluster& cluster_;
  const CostTable* measured_;
  std::vector<Alike> alike_;
};

/// What a stage costs on one kind of device: longest chain from computation to computation, and all computations.
struct PassSeconds {
  double chain = 0, compute = 0;
  double alone() const { return chain > compute ? chain : compute; }
};
struct StageSeconds {
  PassSeconds forward, backward, input;        // the latter two with recomputation
  double after_gradient = 0, input_after = 0;  // the latter two without it: it may run before the gradient comes
  double weights = 0;
  ByAxis<double> communicated;  // by both passes, each axis on one stream
};
/// How long the communications of a microbatch take.
struct CommunicationSeconds {
  std::vector<double> forward, backward;  // by node; 0 for computations
};
/// The stage of instances `first` to before `past`.
StageSeconds stage_seconds(const Microbatch& microbatch, int first, int past, size_t kind,
                           const CommunicationSeconds& communication);

}  // namespace piper
