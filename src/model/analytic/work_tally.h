// Adds up what the operators of one chunk compute, move, keep and hand on.
//
// Conventions (docs/model.md, "Formulas"): only matrix products count as floating-point operations; every operator
// reads its inputs and writes its outputs once; a linear layer costs 2*m*n*k in F, in BI and in BW; attention scores
// cost twice their forward in BI and nothing in BW.
#pragma once

#include <string>
#include <vector>

#include "model/model_graph.h"

namespace piper {

/// What devices divide among them where the chunk is sharded.
enum class Divided { Nothing, Width, Tokens };

/// How the chunk's work is measured: everything is tallied for one unit and multiplied at the end.
struct WorkUnit {
  int64_t rows = 1;            // rows of the matrices of one unit: the tokens of a sample, or 1 for a slot of an expert
  int64_t per_sample = 1;      // units in one sample: 1, or the slots of all experts
  Dim all_rows;                // rows of one matrix: the tokens of a slice, or the slots of an expert
  int64_t experts = 0;         // if not 0: every parameter exists once per expert
  int64_t value_bytes = 2;     // of one element of an activation
  int64_t gradient_bytes = 4;  // of one element of a parameter's gradient
  Divided divided = Divided::Nothing;
  bool in_first = false;  // matrices are stored [in, out]
  bool slots = true;      // of each expert; otherwise all rows lie in one matrix
};

/// Which part of backward reads again what forward keeps.
enum class NeededBy { Input, Weight, Both };

struct TalliedParameter {
  std::string name;
  Shape shape;
  bool needed_by_backward = true;
};

enum class Bias { No, Yes };

/// What one pass costs.
struct PassTally {
  int64_t flops = 0;        // of one unit
  int64_t moved = 0;        // bytes of one unit
  int64_t moved_fixed = 0;  // bytes that do not grow with the batch: parameters and their gradients
  std::vector<ProductShape> products;
  int64_t streamed = 0;  // bytes of one unit: of operators that are no products
  int64_t kernels = 0;
};

class WorkTally {
 public:
  WorkTally(std::string prefix, WorkUnit unit) : prefix_(std::move(prefix)), unit_(unit) {}

  /// A matrix product with the parameter `prefix.name.weight`, [out, in] or [expert, in, out].
  void linear(const std::string& name, int64_t in, int64_t out, Bias bias = Bias::No);
  /// The same with `out` and `in` in factors, of which one may be sharded.
  void linear(const std::string& name, const Shape& out, const Shape& in, Bias bias = Bias::No);
  /// The same, where what comes out chooses experts.
  void router(const std::string& name, int64_t in, int64_t out, Bias bias);
  /// The parameter `prefix.name.bias` of a product in another chunk.
  void bias(const std::string& name, const Shape& shape);
  /// Of the head, with a parameter that has a name of its own because another chunk may use it too.
  void tied_linear(const std::string& parameter, int64_t in, const Dim& out);
  /// A normalisation of rows of `width` elements, `repeat` times per row; with a bias it is a LayerNorm.
  void norm(const std::string& name, int64_t width, Bias bias, int64_t repeat = 1);
  /// A table of which each row of the unit takes one entry.
  void lookup(const std::string& name, const Dim& entries, int64_t width);
  /// Operators without products: elements per row that come in and go out.
  void pointwise(int64_t in, int64_t out);
  /// softmax(q k^T) v of the whole unit, where scores are stored (`passes` times over them) or not (0). `steps`: of
  /// all keys it sees one part of so many.
  void scores(int64_t heads, int64_t query_width, int64_t value_width, int64_t moved_elements, int64_t passes,
              int64_t steps = 1);

  /// Forward keeps this many elements (or bytes) per row for backward.
  void keep(int64_t elements, NeededBy by) { keep_bytes(elements * unit_.value_bytes, by); }
  void keep_bytes(int64_t bytes_per_row, NeededBy by);
  /// A value with this many elements per row lives only inside the chunk; the largest one counts.
  void inside(int64_t elements);
  /// BI leaves this many elements per row for BW: gradients of what linear layers and norms put out.
  void hand(int64_t elements);

  const WorkUnit& unit() const { return unit_; }
  const std::vector<TalliedParameter>& parameters() const { return parameters_; }
  int64_t kept_for_input() const { return for_input_; }    // bytes of one unit
  int64_t kept_for_weight() const { return for_weight_; }  // bytes of one unit
  bool input_reads_kept_for_weight() const { return both_; }
  int64_t handed() const { return handed_; }  // bytes of one unit
  Amount flops(Pass pass) const;
  Amount moved(Pass pass) const;
  Amount temporaries(Pass pass) const;
  OperatorWork operators(Pass pass) const;

 private:
  void parameter(const std::string& name, Shape shape, bool needed_by_backward);
  /// Of rows with `in` elements and a matrix, both ways and for its gradient.
  void product(const Dim& in, const Dim& out, ProductKind kind);
  void linear(const std::string& name, const Shape& out, const Shape& in, Bias bias, ProductKind kind);
  /// A memory-bound operator.
  void stream(PassTally& pass, int64_t bytes);
  void score_operators(int64_t heads, int64_t query_width, int64_t value_width, int64_t passes, int64_t keys);
  PassTally total(Pass pass) const;

  std::string prefix_;
  WorkUnit unit_;
  std::vector<TalliedParameter> parameters_;
  PassTally forward_, input_, weight_;
  int64_t for_input_ = 0, for_weight_ = 0, handed_ = 0;
  bool both_ = false;
  int64_t largest_ = 0;  // bytes of the largest value that lives only inside the chunk
};

}  // namespace piper
