// From a libtorch model to a ModelGraph whose chunks can be executed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "capture/loss/loss_in_blocks.h"
#include "capture/program/chunk_program.h"
#include "capture/program/tried_calls.h"
#include "capture/record/batch_counts.h"
#include "capture/record/recorder.h"
#include "capture/sharding/label_region.h"
#include "capture/sharding/sequence_labels.h"
#include "kernels/kernel_store.h"
#include "model/model_graph.h"
#include "model/shard_seed.h"
#include "runtime/computation.h"
#include "schedule/shard_target.h"

namespace piper {

/// An input of the model: one dimension of samples, then these.
struct InputSpec {
  std::string name;
  DType dtype = DType::Int64;
  std::vector<int64_t> sample_sizes;
};

/// Dimensions of parameters that devices divide which share samples; the rest follows from them. With `sequence`,
/// chunks between them that treat every token alone may be given some of the tokens.
struct TensorParallel {
  std::vector<ShardSeed> parameters = {};
  bool sequence = false;
  bool context = false;  // tokens of the whole model can be divided (context parallelism)
  TokenOrder token_order = TokenOrder::Zigzag;
  int heads_among = 0;  // and attention divides heads among so many devices instead; 0: it gathers keys and values
  bool any() const { return !parameters.empty() || context; }
};

/// A pass of a chunk in one of the forms in which a plan runs it.
struct PassSite {
  std::string chunk;
  Pass pass = Pass::F;
  int64_t samples = 0;
  ShardCounts shards;
  friend auto operator<=>(const PassSite&, const PassSite&) = default;
};

struct CaptureOptions {
  std::string name = "model";
  StepConfig step;
  std::vector<InputSpec> inputs;
  /// Sizes of slices for which chunks can be run; there every size in the graph is exact.
  std::vector<int64_t> samples = {1};
  /// What tensor parallelism divides, asked once the model was recorded. None: nothing.
  std::function<TensorParallel(const std::vector<AnnotatedPart>&)> tensor_parallel = nullptr;
  /// Losses over a vocabulary in blocks of tokens; none: their logits are made whole.
  std::optional<LossBlocks> loss_blocks = LossBlocks();
  /// Chunks whose linear layers multiply in float8.
  std::set<std::string> float8 = {};
  Saved saved = Saved::AsRecorded;
  /// How regions will be divided: there temporaries are exact too.
  std::vector<ShardCounts> shards = {};
  /// What chunks will run on. Operators are measured there.
  c10::Device target = c10::kCPU;
  /// Compiles what runs, and keeps it; none: operators run as they were recorded.
  std::shared_ptr<KernelStore> kernels = nullptr;
  /// What will run, so that nothing else is compiled: temporaries of other passes are those of recorded operators.
  std::vector<PassSite> runs = {};
  /// Run each distinct operator once to see how much memory it takes, and that it gives what was recorded. Without,
  /// temporaries are those between operators, and the second is seen when programs are made.
  bool measure_operators = true;
};

/// The model captured for one size of slices.
struct CapturedSlice {
  int64_t samples = 0;
  TensorParallel tensor_parallel;
  std::shared_ptr<const Recording> recording;
  BatchCounts counts;  // in the recording; the further inputs of `operators`
  OperatorGraph operators;
  std::shared_ptr<const OperatorTable> table;
  std::vector<ChunkBodies> chunks;           // as in the ModelGraph
  std::vector<TensorId> base;                // by value: its tensor in `operators`
  std::vector<TensorLabels> known;           // by tensor of `operators`, if something is sharded
  SequenceLabels sequence;                   // if tokens are divided
  std::set<StorageId> all_tokens;            // of `operators`: what attention needs whole where all tokens are divided
  RegionLabels labels;                       // of regions that can be sharded, or by tensor parallelism, or both
  std::set<size_t> sequence_sharded;         // chunks in which what is sharded are tokens
  std::set<StorageId> linear_matrices;       // of `operators`
  std::set<std::string> float8;              // chunks that multiply with them so
  std::map<TensorId, TensorLabels> divided;  // by tensor of `operators`: values that regions divide

  /// Null: it is in no region.
  const BodyLabels* labels_of(size_t chunk, Pass pass) const;
};

class CapturedModel {
 public:
  const std::shared_ptr<const ModelGraph>& graph() const { return graph_; }
  const std::vector<CapturedSlice>& slices() const { return slices_; }

  /// The program of a pass. Reads, writes, parameters and gradients are in the order of its PassWork; states are those
  /// that `states` names. Pass R is F without its writes to model buffers. In a region that is divided all sizes are
  /// those of one of the devices.
  /// Refused: a size of slices that was not captured (E607); R of a chunk that needs what it wrote to a buffer (E606);
  /// parts of what cannot be divided so (E308); a kernel that gives something else than was recorded (E609).
  Result<std::shared_ptr<const ChunkProgram>> program(ChunkId chunk, Pass pass, int64_t samples,
                                                      const ShardCounts& shards = {},
                                                      c10::Device device = c10::kCPU) const;

  /// Whether `program` would refuse it.
  Checked check_program(ChunkId chunk, Pass pass, int64_t samples, const ShardCounts& shards) const;

  /// Qualified names of the model buffers that the pass writes. They are no part of the plan: one copy on each device.
  std::vector<std::string> states(ChunkId chunk, Pass pass) const;

  /// How the tensor of a value looks in a slice of so many samples; inside a region that is divided, on one device.
  Result<TensorForm> form(ValueId value, int64_t samples, const ShardCounts& shards = {}) const;

  /// What the loss divides by is counted in a whole batch, and given as further inputs: `fill`, with these. Of a loss
  /// that counts nothing: `fill` itself. `batches`: so many count as one, and the mean of their losses is its loss.
  FillInput with_batch_counts(FillInput fill, int64_t batches = 1) const;
  /// The same with counts that are known: those of `samples` samples together.
  FillInput with_counts(FillInput fill, std::vector<double> counted, int64_t samples) const;

  /// Why regions that declare experts cannot be sharded; they run undivided.
  const std::vector<Diagnostic>& unshardable() const { return unshardable_; }

 private:
  friend Result<CapturedModel> capture(const MetaModel&, const CaptureOptions&);
  Result<const CapturedSlice*> slice(int64_t samples) const;

  /// All at once, because it takes long.
  void build_kernels(const CapturedSlice& slice, const std::set<PassSite>& runs) const;

  Result<ChunkIr> body(const CapturedSlice& slice, ChunkId chunk, Pass pass, const ShardCounts& shards) const;

  std::shared_ptr<const ModelGraph> graph_;
  std::vector<CapturedSlice> slices_;
  std::vector<Diagnostic> unshardable_;
  std::shared_ptr<TriedCalls> tried_;     // on the target
  std::shared_ptr<KernelStore> kernels_;  // none: operators run as recorded
};

/// Runs the model once for each size of slices, on fake tensors.
Result<CapturedModel> capture(const MetaModel& model, const CaptureOptions& options);

}  // namespace piper
