// Calls along a dimension that is sharded, as calls that each device can make of its part.
//
// Some operators mix what would lie on different devices, but can be written as several that do not, with a sum or a
// maximum between them: the rows of a table that indices name, a softmax and its loss over the vocabulary, a bias
// inside a product, a mean; or give all of it, of which a part is taken: numbers by position. They stay as they are
// where their dimension is not sharded.
#pragma once

#include <map>
#include <set>

#include "capture/sharding/label_rules.h"

namespace piper {

/// Whether the call may have a sharded dimension where its rule wants a plain one.
bool can_be_parted(const OperatorGraph& graph, const BodyLabels& labels, const Call& call, const MustBePlain& where);

struct PartedGraph {
  OperatorGraph graph;
  BodyLabels labels;
  std::map<CallId, CallId> parts_of;  // by call that works on a sum of parts, as its bias: what makes the parts
  std::set<CallId> inside;            // work on nothing that is divided, but belong to those that do
};
PartedGraph part_calls(OperatorGraph graph, BodyLabels labels);

}  // namespace piper
