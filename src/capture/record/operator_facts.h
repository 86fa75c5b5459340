// What the recorder asks about an operator, found once.
#pragma once

#include <unordered_map>
#include <vector>

#include "capture/record/operator_table.h"
#include "capture/record/shape_rules.h"

namespace piper {

struct OperatorFacts {
  OperatorId id;
  ShapeRule rule = nullptr;
  bool decomposes = false;      // into operators that are recorded instead
  OperatorId shows_as;          // of one that makes its argument a view: that which returns the view
  bool data_dependent = false;  // what it returns, or its shape, depends on values
  bool view = false;            // what it returns shows its arguments
  int device = -1;              // index of the argument
  std::vector<char> writes;     // by argument
  int training = -1;            // index of the argument without which it writes nothing
};

/// Adds operators to the graph and the table as they are asked for.
class KnownOperators {
 public:
  /// `device`: of the tensors that the model is recorded on.
  KnownOperators(OperatorGraph& graph, OperatorTable& table, c10::Device device)
      : graph_(graph), table_(table), device_(device) {}

  const OperatorFacts& facts(const c10::OperatorHandle& op);

 private:
  /// The device of fake tensors has a kernel for what is several operators elsewhere: fused norms of a GPU.
  bool runs_as_one(const c10::OperatorHandle& op) const;

  OperatorGraph& graph_;
  OperatorTable& table_;
  const c10::Device device_;
  std::unordered_map<const c10::FunctionSchema*, OperatorFacts> facts_;
};

}  // namespace piper
