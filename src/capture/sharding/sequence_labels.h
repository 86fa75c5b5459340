// Sequence parallelism: which chunks between the regions that are sharded treat every token alone, and along which
// dimension of each tensor the tokens lie.
//
// The seed is the second dimension of the model's inputs, [samples, tokens, ...]; the rest follows by the rules of
// label_rules.h, over forward and backward. Inside regions that are sharded only views are followed, and the embedding
// of tokens: there every device has all of them. A chunk in which operators mix tokens keeps all of them as well.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "capture/sharding/label_rules.h"

namespace piper {

struct SequenceLabels {
  std::vector<TensorLabels> tensors;  // of the graph; marked Sharded: tokens
  std::set<std::string> chunks;       // names of those that can be given some of the tokens
};
SequenceLabels find_sequence(const OperatorGraph& graph);

}  // namespace piper
