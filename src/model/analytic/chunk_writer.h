// Writes chunks into a ModelGraph: turns a tally and the values a chunk touches into F, B, BI and BW.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/analytic/model_config.h"
#include "model/analytic/work_tally.h"

namespace piper {

/// A value of forward with its gradients, one from each chunk that reads it.
struct Flow {
  ValueId value;
  std::vector<ValueId> gradients;
};

/// A chunk without its saved values and costs, which follow from the tally.
struct ChunkDraft {
  std::string name;
  std::vector<ScopeTag> scopes;
  std::vector<ValueId> reads;            // F
  std::vector<ValueId> writes;           // F
  std::vector<ValueId> input_reads;      // BI: gradients that arrive, and values of forward it needs
  std::vector<ValueId> input_writes;     // BI: gradients of what F reads
  std::vector<ValueId> weight_reads;     // BW: the same for the gradients of parameters
  std::vector<ValueId> all_tokens = {};  // of these, where tokens are divided
  std::optional<int> rotation = {};      // the step of a ring that it belongs to
  std::vector<ValueId> rotated = {};     // of which it has tokens of another device, so many before its own
  bool causal = false;                   // and fewer of them for earlier tokens
};

/// How fine chunks are: blocks of layers, or the parts of blocks that tensor parallelism tells apart; the same also of
/// embedding and head, where the vocabulary is sharded.
enum class LayerForm { Blocks, Sharded, ShardedVocabulary };

/// For context parallelism all tokens are labelled, and attention has keys and values apart from queries. Needs parts
/// of blocks.
struct TokenForm {
  bool divided = false;
  int64_t key_heads = 1;  // attention has at least so many, each repeated as often; none if they do not divide it
  int ring = 0;           // attention in so many steps, of the keys and values of one device each; 0: of all at once
};

class ChunkWriter {
 public:
  ChunkWriter(const ModelConfig& config, const StepConfig& step, LayerForm form, TokenForm tokens);

  const ModelConfig& config() const { return config_; }
  bool is_sharded() const { return form_ != LayerForm::Blocks; }
  bool shards_vocabulary() const { return form_ == LayerForm::ShardedVocabulary; }
  bool divides_context() const { return tokens_.divided; }
  int ring() const { return tokens_.ring; }
  /// How often attention has every head of keys and values.
  int64_t key_copies() const;
  /// Tokens of a sample.
  int64_t sequence() const { return step_.sequence; }
  /// Activations have the dtype of the weights.
  DType dtype() const { return step_.weights; }

  /// Work measured per sample, or per slot of an expert, or per row.
  WorkUnit per_sample() const;
  WorkUnit per_slot() const;

  ValueId input(std::string name);
  ValueId loss(std::string name);
  /// [b, sequence, hidden], read by the chunks named (one: the gradient is d.NAME, several: d.NAME.READER).
  Flow activation(const std::string& name, const std::vector<std::string>& readers = {""});
  /// [b, sequence, elements], divided where the chunk is sharded; read by one chunk.
  Flow inner(const std::string& name, int64_t elements) { return inner(name, elements, dtype()); }
  Flow inner(const std::string& name, int64_t elements, DType dtype);
  /// [b, sequence, heads, width] where context parallelism may divide them, else the same as one dimension.
  Flow heads(const std::string& name, int64_t count, int64_t width);
  /// [b, sequence, heads, width], or without a width [b, sequence, heads]; its gradient is made of others.
  ValueId of_heads(std::string name, DType dtype, int64_t count, std::optional<int64_t> width = {});
  /// [b, sequence] in float32, and one number, of which each device has a part.
  ValueId per_token(std::string name, Partial partial);
  ValueId partial_number(std::string name);
  void make_partial(ValueId value) { builder_.make_partial(value); }
  /// [expert, capacity, hidden], or without slots [routed, hidden]; read by one chunk.
  Flow slots(const std::string& name);
  /// [expert]: where the rows of each end.
  ValueId ends_of_rows(std::string name);
  /// [b, sequence, top_k] of any dtype.
  ValueId per_choice(std::string name, DType dtype);

  /// Adds what forward saves (`.saved` for BI, `.kept` until BW), what BI hands to BW (`.handed`), and all passes.
  void add(ChunkDraft draft, const WorkTally& tally);
  /// The same of a chunk whose rows are sorted by expert.
  void add_routed(ChunkDraft draft, const WorkTally& tally, ValueId ends);

  ModelGraph finish() && { return std::move(builder_).finish(); }

 private:
  Shape blob_shape(const WorkUnit& unit, int64_t bytes) const;
  /// The tokens of a sample inside of a chunk, where `activation` labels those between chunks.
  Dim inner_tokens() const;
  Dim capacity() const;
  /// Dimensions of what has a row for each slot, and so many elements in a row.
  Shape slot_shape(const Dim& width) const;
  std::vector<ParameterId> parameters(const WorkTally& tally, bool only_needed_by_backward);
  ChunkId add_passes(ChunkDraft draft, const WorkTally& tally);
  void add_forward(ChunkId chunk, const ChunkDraft& draft, const WorkTally& tally);
  void add_backward(ChunkId chunk, Pass pass, const WorkTally& tally, PassWork work);

  const ModelConfig& config_;  // outlives the writer
  StepConfig step_;
  LayerForm form_;
  TokenForm tokens_;
  ModelBuilder builder_;
  std::map<std::string, ParameterId> parameter_ids_;
};

}  // namespace piper
