// What operators say about the dimensions of their arguments and results, by classes of operators.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/chunk/chunk_ir.h"
#include "capture/sharding/dimension_labels.h"

namespace piper {

/// A dimension that must turn out to be plain, and why.
struct MustBePlain {
  TensorId tensor;
  size_t dim = 0;
  std::string why;  // completes "…: mean over [the capacity dimension]"
};

/// What is wrong with a call.
struct LabelProblem {
  std::string what;
};

/// Labels of the tensors of one body while they are being found.
struct BodyLabels {
  std::vector<TensorLabels> tensors;
  bool tp = false;      // dimensions are sharded by tensor parallelism: sums over them are terms
  bool tokens = false;  // and what is sharded are tokens, which stay in their order; of all else blocks may be taken
};

/// What came of applying the rules of several calls once.
struct LabelSweep {
  bool learned = false;
  const Call* stopped_at = nullptr;  // the first whose rule cannot be satisfied
  LabelProblem problem;              // of that
  std::vector<std::pair<const Call*, MustBePlain>> must_be_plain;
};
/// From the first call to the last and back; whoever wants all labels repeats it until nothing is learned.
///
/// That ends. Rules change labels in three ways only: a factor falls into two, an unknown one is marked, a border
/// between blocks is added. Each raises `knowledge` of a tensor, and nothing lowers it (a rule that did would be
/// stopped as an error of ours). `learned` is said only if it was raised. So every sweep but the last adds at least
/// one to the sum over all tensors, which is at least 0 and at most that of `most_knowledge`.
LabelSweep sweep_rules(const OperatorGraph& graph, const std::vector<GraphTensor>& tensors,
                       const std::vector<const Call*>& calls, BodyLabels& labels);

/// Whether the call adds up (or takes the greatest) over a dimension with this mark that the result does not have.
bool sums_over(const OperatorGraph& graph, const BodyLabels& labels, const Call& call, TensorId result, Mark mark);

/// Whether what it takes over a dimension is the greatest, not the sum.
bool is_maximum(const OperatorGraph& graph, const Call& call);

/// Whether the operator is linear in the one (or in all) of its arguments that are partial sums.
bool keeps_partial_sums(const OperatorGraph& graph, const std::vector<GraphTensor>& tensors, const BodyLabels& labels,
                        const Call& call);

/// `aten::add_.Tensor` -> add_
std::string base_name(const Operator& op);

}  // namespace piper
