// What the computations of a plan do, and how the tensors between them lie in memory: the model's side of a run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
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

/// Names of what a computation takes and gives, in the order of its arguments.
struct ComputationForm {
  std::vector<std::string> reads, writes;  // values
  std::vector<std::string> parameters, gradients;
};

/// What random numbers depend on: never where or when they are drawn.
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
  /// While it is recorded: where its seeds are read when it runs.
  const at::Tensor* seeds = nullptr;
  Branch* branch = nullptr;  // for what nobody waits for soon
};

class Computation {
 public:
  virtual ~Computation() = default;
  virtual void run(const ComputationArguments& arguments) = 0;
  /// How many operators it calls.
  virtual int64_t operators() const { return 0; }
  /// After the first step: but for random numbers it does the same whatever the slice is, so that it may be recorded
  /// with its tensors.
  virtual bool can_be_recorded() const { return false; }
  /// All that its random numbers depend on in a slice, draw by draw; always as many.
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
    std::vector<int64_t> blocks = {};  // that the factor consists of; none: it is one
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
  /// Called while a run is prepared. What cannot run is thrown.
  virtual std::unique_ptr<Computation> make(const ComputationSite& site) = 0;
  /// A value on one of the devices that divide it so.
  virtual TensorForm value(std::string_view name, int64_t samples, const ShardCounts& shards = {}) const = 0;
  /// The dimension of the value that grows with the samples; what crosses between groups of different size has one.
  virtual int64_t sample_dim(std::string_view value) const = 0;
  /// `inwards`: each device has the whole before, and its part afterwards.
  virtual ExchangeForm exchange(std::string_view value, int64_t samples, int64_t parts, bool inwards) const = 0;
  virtual ParameterForm parameter(std::string_view name) const = 0;
};

}  // namespace piper
