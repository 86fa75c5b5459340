// What is known of ATen's operators, a row for each: how the dimensions of results follow from those of arguments, and
// what becomes of an argument that is a term of a sum (`Partial`). An operator without a row is pointwise if libtorch
// says so, or else nothing is known of it and it refuses what is sharded. A new operator is a new row.
#pragma once

#include <string_view>

#include "capture/record/operator_graph.h"

namespace piper {

/// How labels of dimensions go from arguments to results and back: functions of label_rules.cc.
enum class DimRule {
  Unknown,
  Pointwise,
  View,
  Factory,  // labels are learned from use: what is made is uniform, and any part can be taken of what is whole
  Expand,
  Permute,
  Complex,
  Repeat,
  Pad,
  Flip,
  Product,
  GroupedProduct,
  Convolution,
  Reduction,
  Extreme,
  AlongOne,
  Norm,
  Attention,
  Repeated,
  Embedding,
  Loss,
  TakeRows,
  TakeColumns,
  Logits,
  Part,
  PartBackward,
  Join,
  Gather,
  Selection,
  Insertion,
};

/// What a result is if arguments are terms of sums.
enum class TermRule {
  Mixed,          // needs the sums
  Linear,         // a term, if one argument is
  LinearInFirst,  // a term, if the first argument alone is
  Sum,            // a term, if all arguments are
};

struct OperatorRule {
  std::string_view name;
  DimRule dims = DimRule::Unknown;
  TermRule terms = TermRule::Mixed;
  bool anywhere = false;  // terms go through it also outside of what is sharded
  bool adds_up = false;   // it may add up, or take the greatest, over dimensions that its result does not have
};

/// The row of an operator by the base of its name.
OperatorRule rule_of(const Operator& op);

/// `aten::add_.Tensor` -> add_
std::string base_name(const Operator& op);

}  // namespace piper
