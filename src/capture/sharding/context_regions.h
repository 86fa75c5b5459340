// Context parallelism: which tensors of a recorded graph have tokens, once each device has some of the tokens of every
// sample.
//
// What follows from inputs and constants alone (positions, masks, labels that were shifted) every device computes
// whole, and takes its part where it meets tokens; so of parameters that have a row for each token. All else is
// labelled from the inputs on by the rules of label_rules.h. Attention calls become regions of their own, scopes `core`
// inside the scopes that were annotated: their queries are divided, their keys and values whole; or all that goes in
// and out has all tokens of some heads.
#pragma once

#include <set>

#include "base/result.h"
#include "capture/sharding/label_rules.h"

namespace piper {

struct ContextGraph {
  OperatorGraph graph;
  std::vector<TensorLabels> labels;  // by tensor; marked Sharded: tokens
  std::set<StorageId> all_tokens;    // of which attention needs all: keys, values, and their gradients
};
/// `heads_among`: attention divides heads among so many devices; 0: it gathers keys and values.
/// Refused (E317): operators that mix tokens, other forms of attention than scaled_dot_product_attention, heads that do
/// not divide.
Result<ContextGraph> mark_context_regions(OperatorGraph graph, TokenOrder order, int heads_among);

/// Of tensors that came into the graph since, by the same rules.
void label_new_tensors(const OperatorGraph& graph, std::vector<TensorLabels>& known);

}  // namespace piper
