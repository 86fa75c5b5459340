// Which dimensions of the tensors of a region a directive may divide among devices, and which it gathers in exchange.
//
// A dimension is a row-major product of factors, each labelled or plain: [E*C, D] is {E C}{D}. A factor may be several
// blocks one after another, as the queries, keys and values of a fused projection are: what is sharded is then a
// part of each block. Labels are found by unification: an operator says which factors of its arguments and results are
// the same, and what is known of one is then known of the other, in both directions. No size is ever compared to guess
// a label.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_graph.h"

namespace piper {

enum class Mark : uint8_t {
  Unknown,
  Plain,
  Expert,    // experts: devices hold a part of them each
  Capacity,  // slots of experts: devices hold those of all slices
  Routed,    // rows that are sorted by expert: devices hold those of their experts, of all slices
  Sharded,   // by tensor parallelism: devices that share samples hold a part of it each; its leading part may be told
             // apart from the rest
  Head,      // of attention: where context parallelism divides those, devices hold some each, and all tokens
  Sample,    // samples of the slice: only for random numbers (sample_labels.h)
};

struct Factor {
  int64_t size = 1;
  Mark mark = Mark::Unknown;
  std::vector<int64_t> borders = {};  // between its blocks, ascending
};
/// Sizes of its blocks: one if it has no borders.
std::vector<int64_t> blocks_of(const Factor& factor);
using Factors = std::vector<Factor>;  // of a dimension; none: size 1, which matches anything

struct TensorLabels {
  std::vector<Factors> dims;
  bool sums_gathered = false;  // adds up what belongs to different slices
  bool sums_divided = false;   // adds up what lies on different devices: each has only a part of the sum
  bool are_maxima = false;     // and: not of a sum, but the greatest of its own
};

TensorLabels unknown_labels(const std::vector<int64_t>& sizes);

bool has(const Factors& dim, Mark mark);
bool has(const TensorLabels& labels, Mark mark);
bool is_labelled(const Factors& dim);
bool is_labelled(const TensorLabels& labels);
/// The dimension that is this mark and nothing else, in one block, or -1.
int separate_dim(const TensorLabels& labels, Mark mark);

/// What divides factors with this mark, in a body that is divided so: what a body has is sharded by tensors or by
/// tokens, never both.
ShardKind kind_of(Mark mark, const ShardCounts& shards);
/// Size of a dimension on one of the devices.
int64_t local_size(const Factors& dim, const ShardCounts& shards);
std::vector<int64_t> local_sizes(const TensorLabels& labels, const ShardCounts& shards);

/// What came of two lists of factors that describe the same elements in the same order.
enum class Match {
  Same,       // nothing new
  Learned,    // labels or borders went from one to the other
  Conflict,   // different labels meet
  Straddles,  // a border of one list lies inside of a labelled factor of the other
};
/// Refines and unifies both. `left` and `right`: the two factors of a conflict.
Match unify(const std::vector<Factors*>& a, const std::vector<Factors*>& b, Factor* left, Factor* right);

/// The same where `part` is what lies in `whole` from `start` on: it has the inner factors of the whole, and the others
/// are a block of the outermost, or some blocks, or lie in one.
Match unify_block(Factors& whole, Factors& part, int64_t start, Factor* left, Factor* right);

/// `unify` for every dimension of two tensors with equal contents; whether something was learned.
bool unify_tensors(TensorLabels& a, TensorLabels& b);

/// How much is known of a tensor. Whatever is learned adds at least one, nothing takes away, and for given sizes there
/// is a most: all factors are prime, marked, and every place is a border.
int64_t knowledge(const TensorLabels& labels);
int64_t most_knowledge(const std::vector<int64_t>& sizes);

/// All that is known of a tensor by two ways of labelling it; false if they disagree about a factor.
bool merge(TensorLabels& into, TensorLabels from);
/// What nothing was learned of is plain; equal blocks are a factor of their own.
void settle(TensorLabels& labels);
/// What is sharded are heads.
void call_heads(TensorLabels& labels);

/// `[E, C, 6]`, `[E*C, 6]`, `[T4|2|2*8]`: the initials are those of the labels in model graphs, T what is sharded, H
/// heads.
std::string print(const TensorLabels& labels);
std::string describe(const Factor& factor);

}  // namespace piper
