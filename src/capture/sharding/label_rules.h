// What operators say about the dimensions of their arguments and results; operator_rules.h has the table.
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
  bool tp = false;       // dimensions are sharded by tensor parallelism: sums over them are terms
  bool tokens = false;   // and what is sharded are tokens, which stay in their order; of all else blocks may be taken
  bool context = false;  // and all tokens are: attention has queries of some and keys of all, a loss is that of some
  bool heads = false;    // or heads of attention, which has all tokens then
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
/// stopped as an internal error). `learned` is said only if it was raised. So every sweep but the last adds at least
/// one to the sum over all tensors, which is at least 0 and at most that of `most_knowledge`.
LabelSweep sweep_rules(const OperatorGraph& graph, const std::vector<GraphTensor>& tensors,
                       const std::vector<const Call*>& calls, BodyLabels& labels);

}  // namespace piper
