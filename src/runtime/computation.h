// The model's side of a run: what the computations of a plan do, and the layout of the tensors between them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_graph.h"
#include "runtime/stream/branch.h"

namespace piper {

/// The tensor behind a value: a whole storage.
struct TensorForm {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> sizes, strides;
};

/// One computation of the plan on one device.
struct ComputationSite {
  std::string_view name;  // of the chunk
  Pass pass = Pass::F;
  int64_t samples = 0;  // of the slice, on this device
  LocalShards shards;   // of the values it works on
  int device = 0;
  int64_t first_sample = 0;  // of the slice, in the batch of the whole step
};

/// Names of a computation's inputs and outputs, in the order of its arguments.
struct ComputationForm {
  std::vector<std::string> reads, writes;  // values
  std::vector<std::string> parameters, gradients;
  std::optional<std::string> routed_by = {};  // the value that says where the rows of each expert end
};

/// What random numbers of a slice depend on; not where or when they are drawn.
struct SliceKey {
  uint64_t seed = 0;                           // of the step
  int64_t first_sample = 0;                    // of the slice, in the batch of the whole step
  std::vector<int64_t> gathered_samples = {};  // first samples of all slices gathered here (experts)
};

struct ComputationArguments {
  const std::vector<at::Tensor>& reads;
  const std::vector<at::Tensor>& parameters;
  const std::vector<at::Tensor>& gradients;  // added to
  std::vector<at::Tensor>& writes;           // set
  const SliceKey& slice;
  /// While a CUDA graph is recorded: the tensor from which the graph reads its seeds.
  const at::Tensor* seeds = nullptr;
  Branch* branch = nullptr;  // side streams, for work that nothing waits for soon; may be null
};

class Computation {
 public:
  virtual ~Computation() = default;
  virtual void run(const ComputationArguments& arguments) = 0;
  /// How many operators it calls.
  virtual int64_t operators() const { return 0; }
  /// Asked after the first step: whether it does the same for every slice, random numbers aside, so that it may be
  /// recorded as a CUDA graph.
  virtual bool can_be_recorded() const { return false; }
  /// The seeds of its random numbers in a slice, one per draw; equally many for every slice.
  virtual std::vector<uint64_t> seeds(const SliceKey&) const { return {}; }
};

/// How a value is exchanged among the devices of a group.
struct ExchangeForm {
  TensorForm before, after;
  int64_t run_before = 0, run_after = 0;  // contiguous bytes for each peer
};

/// A parameter, and how it is divided: along a factor of a dimension for every kind of sharding.
struct ParameterForm {
  struct Along {
    size_t dim = 0, factor = 0;
    std::vector<int64_t> blocks = {};  // the factor consists of these; empty: of one
  };
  DType dtype = DType::Float32;
  std::vector<int64_t> sizes, factors;
  ByShardKind<Along> along;

  std::vector<int64_t> local_sizes(const LocalShards& shards) const {
    std::vector<int64_t> out = sizes;
    for (const ShardRule& rule : shard_rules)
      if (shards[rule.kind].count > 1) out[along[rule.kind].dim] /= shards[rule.kind].count;
    return out;
  }
};

class Computations {
 public:
  virtual ~Computations() = default;
  virtual ComputationForm form(std::string_view name, Pass pass) const = 0;
  /// Called while a run is prepared. Throws if it cannot run.
  virtual std::unique_ptr<Computation> make(const ComputationSite& site) = 0;
  /// A value on a device that has one of these shards.
  virtual TensorForm value(std::string_view name, int64_t samples, const ShardCounts& shards = {}) const = 0;
  /// The dimension that grows with the samples. Values that cross between groups of different size have one.
  virtual int64_t sample_dim(std::string_view value) const = 0;
  /// `inwards`: into the sharded region, to the experts or tokens of one device; otherwise out of it.
  virtual ExchangeForm exchange(std::string_view value, int64_t samples, int64_t parts, bool inwards) const = 0;
  virtual ParameterForm parameter(std::string_view name) const = 0;
};

}  // namespace piper
