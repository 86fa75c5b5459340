// What operators say about the dimensions of their arguments and results: ten classes, and everything else.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/dimension_labels.h"
#include "capture/pass_body.h"

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
  bool cut = false;  // dimensions are cut: then blocks may be taken of what stands outside of them
};

struct RuleResult {
  bool learned = false;
  std::optional<LabelProblem> problem;
  std::vector<MustBePlain> must_be_plain;
};
/// Applies the rule of the call's operator once.
RuleResult apply_rule(const OperatorGraph& graph, const std::vector<GraphTensor>& tensors, const Call& call,
                      BodyLabels& labels);

/// Whether the call adds up over a dimension with this mark that the result does not have.
bool sums_over(const OperatorGraph& graph, const BodyLabels& labels, const Call& call, TensorId result, Mark mark);

/// Whether the operator is linear in the one (or in all) of its arguments that are partial sums.
bool keeps_partial_sums(const OperatorGraph& graph, const std::vector<GraphTensor>& tensors, const BodyLabels& labels,
                        const Call& call);

/// `aten::add_.Tensor` -> add_
std::string base_name(const Operator& op);

}  // namespace piper
