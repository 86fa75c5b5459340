// The model as the compiler sees it: chunks, the values between them, parameters, sizes and costs.
//
// A ModelGraph describes the forward and backward pass over one slice of the batch; every size is a function of the
// number of samples in that slice. A chunk is a maximal run of operators of one scope instance. Each of its passes
// reads and writes values: activations, what forward saves for backward, and gradients are all just values. A value has
// one producer; a gradient with several contributions is several values, summed by the pass that reads them.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "model/operator_work.h"

namespace piper {

using ChunkId = Id<struct ChunkTag>;
using ValueId = Id<struct ValueTag>;
using ParameterId = Id<struct ParameterTag>;

/// Forward; backward; backward in two parts: gradients of inputs, gradients of weights; forward again before backward.
enum class Pass { F, B, BI, BW, R };
inline constexpr std::array all_passes = {Pass::F, Pass::B, Pass::BI, Pass::BW, Pass::R};
std::string_view name(Pass pass);

/// One level of annotation: `layer=3`. Instances are numbered inside the enclosing instance.
struct ScopeTag {
  std::string scope;
  int index = 0;
  friend bool operator==(const ScopeTag&, const ScopeTag&) = default;
};
/// The instance of `scope` among them, if there is one.
std::optional<int> index_in(const std::vector<ScopeTag>& scopes, std::string_view scope);

enum class ValueKind {
  Input,     // read from the batch wherever it is needed, never sent
  Computed,  // written by a pass
  Loss,      // written by a forward pass; summed over slices
};

/// What each device of a tensor-parallel group has of a value that a sharded chunk writes.
enum class Partial {
  No,   // all of it, or its shard
  Sum,  // a term of the sum that it is
  Max,  // the greatest of its own elements
};

struct Value {
  std::string name;
  ValueKind kind = ValueKind::Computed;
  DType dtype = DType::Float32;
  Shape shape;
  Partial partial = Partial::No;
  friend bool operator==(const Value&, const Value&) = default;
};

struct Parameter {
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;           // fixed dimensions only; a label says along which one it can be divided
  bool frozen = false;   // no pass contributes to a gradient, and it is never updated
  bool partial = false;  // where its chunks are sharded by tensor parallelism, its gradient is a sum over the devices
  std::optional<int> sharded = {};   // the dimension of the tensor that a directive named; labels follow from it
  std::vector<int64_t> tensor = {};  // sizes of the tensor, where the shape has factors of them
  friend bool operator==(const Parameter&, const Parameter&) = default;
};

/// What one pass of a chunk does with one slice.
struct PassWork {
  std::vector<ValueId> reads;
  std::vector<ValueId> writes;
  std::vector<ParameterId> parameters;  // whose values it needs
  std::vector<ParameterId> gradients;   // to whose gradients it contributes
  bool state = false;                   // it changes something that stays with its chunk from slice to slice
  Amount flops;
  Amount bytes_moved;
  std::optional<OperatorWork> operators;  // the same by operator, if it is known
  Amount temporaries;                     // peak of bytes that live only while it runs
  std::map<ShardCounts, Amount> divided;  // the same where its values are divided so, if it is known

  /// Where nothing is known, they are divided as tokens are, and grow as the buffer of rows does.
  int64_t temporaries_on(const ShardCounts& shards, int64_t samples) const;
  friend bool operator==(const PassWork&, const PassWork&) = default;
};

struct Chunk {
  std::string name;
  std::vector<ScopeTag> scopes;                 // outermost first
  std::array<std::optional<PassWork>, 4> work;  // F, B, BI, BW; recomputation does the work of F
  bool experts = false;                         // lies in a region that was annotated as experts
  /// Its rows are sorted by expert, and each expert's end where this says. A row is computed by itself.
  std::optional<ValueId> routed_by = {};
  bool sequence_sharded = false;  // treats every token alone: where it is sharded, each device has some of the tokens
  /// Where context parallelism gives each device some of the tokens it still needs all of these (keys and values of
  /// attention), and has a term of their sum of each (gradients of those); or it has some heads, and all tokens.
  std::vector<ValueId> all_tokens = {};
  /// Its linear products were captured in float8: temporaries are those of such products.
  bool float8 = false;
  bool causal = false;  // and its work for a token grows with the number of tokens before it: causal attention
  /// The step of ring attention that it belongs to: of `rotated` it works on the tokens of another device, so many
  /// before its own along the axis.
  std::optional<int> rotation = {};
  std::vector<ValueId> rotated = {};

  const PassWork* find(Pass pass) const;
  bool has_all_tokens(ValueId value) const { return std::ranges::find(all_tokens, value) != all_tokens.end(); }
  /// Along the axis that divides tokens: by how many devices before its own it has those of the value.
  int rotation_of(ValueId value) const {
    return rotation && std::ranges::find(rotated, value) != rotated.end() ? *rotation : 0;
  }
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

enum class Optimizer { Sgd, Momentum, AdamW, Lion, Muon, Adafactor };
inline constexpr Optimizer all_optimizers[] = {Optimizer::Sgd,  Optimizer::Momentum, Optimizer::AdamW,
                                               Optimizer::Lion, Optimizer::Muon,     Optimizer::Adafactor};
std::string_view name(Optimizer optimizer);
std::optional<Optimizer> optimizer_named(std::string_view text);
std::vector<std::string> optimizer_names();
/// Numbers that it keeps for every element. Adafactor keeps sums over rows and columns instead (whole_state.h).
int64_t moments(Optimizer optimizer);

/// What memory and work depend on besides the model itself.
struct StepConfig {
  int64_t batch = 1;     // samples of one step on the whole cluster
  int64_t sequence = 1;  // tokens of a sample
  DType weights = DType::Float32;
  DType gradients = DType::Float32;
  std::optional<DType> master;            // the optimizer's own copy of the weights
  std::optional<DType> master_gradients;  // the optimizer's own copy of the gradients
  Optimizer optimizer = Optimizer::AdamW;
  std::optional<DType> moments;            // none: as wide as what is precise; else narrower, and rounded at random
  std::vector<std::string> matrices = {};  // muon: the parameters that it updates; AdamW does the others
  bool ema = false;                        // an exponential moving average of the weights is kept
  friend bool operator==(const StepConfig&, const StepConfig&) = default;
};

/// What updates the parameters of a bucket: the optimizer of the step, or AdamW what that leaves out.
Optimizer optimizer_of(const StepConfig& step, bool whole);
/// Whether the optimizer of the step has to see all of a parameter at once: a matrix of Muon's, or any of Adafactor's.
bool is_updated_whole(const StepConfig& step, std::string_view parameter);
/// Whether Muon updates a parameter of a model from a configuration: a matrix of a layer. Embeddings, heads and vectors
/// are left to AdamW.
bool is_hidden_matrix(std::string_view parameter, size_t dims);

struct ModelGraph {
  std::string name;
  StepConfig step;
  bool context = false;  // all tokens are labelled: what has none is the same wherever its samples are
  int ring = 0;          // and attention is the steps of a ring of so many devices; 0: it has all keys at once
  std::vector<Value> values;
  std::vector<Parameter> parameters;
  std::vector<Chunk> chunks;  // in order of execution

  const Value& operator[](ValueId id) const { return values[id.index()]; }
  const Parameter& operator[](ParameterId id) const { return parameters[id.index()]; }
  const Chunk& operator[](ChunkId id) const { return chunks[id.index()]; }
  friend bool operator==(const ModelGraph&, const ModelGraph&) = default;
};

/// How backward of a chunk falls into two: what other chunks wait for, and the rest. A part may be missing.
struct BackwardParts {
  const PassWork* input = nullptr;
  const PassWork* weight = nullptr;
};
/// Nothing if the chunk says nothing about BI and BW and both kinds of gradients come out of its backward.
std::optional<BackwardParts> backward_parts(const Chunk& chunk);

/// The dimension along which slices of the batch are cut, if the value has one: the first unlabelled per-sample one.
bool has_batch_dimension(const Value& value);
int64_t parameter_count(const ModelGraph& model);

/// Adds values, parameters and chunks by name; for the producers of models.
class ModelBuilder {
 public:
  explicit ModelBuilder(std::string name, StepConfig step);
  ValueId value(std::string name, ValueKind kind, DType dtype, Shape shape);
  ParameterId parameter(std::string name, DType dtype, Shape shape);
  void freeze(ParameterId parameter);
  /// The sizes of its tensor, if its shape has factors of them.
  void set_tensor(ParameterId parameter, const std::vector<int64_t>& sizes);
  /// Muon updates it.
  void add_matrix(std::string name) { model_.step.matrices.push_back(std::move(name)); }
  void make_partial(ParameterId parameter);
  void make_partial(ValueId value, Partial how = Partial::Sum);
  void make_sequence_sharded(ChunkId chunk);
  void needs_all_tokens(ChunkId chunk, std::vector<ValueId> values, bool causal);
  void rotate(ChunkId chunk, int rotation, std::vector<ValueId> values, bool causal);
  void route(ChunkId chunk, ValueId by) { model_.chunks[chunk.index()].routed_by = by; }
  void label_all_tokens(int ring = 0);
  ChunkId chunk(std::string name, std::vector<ScopeTag> scopes);
  PassWork& work(ChunkId chunk, Pass pass);
  ModelGraph finish() &&;

 private:
  ModelGraph model_;
};

}  // namespace piper
