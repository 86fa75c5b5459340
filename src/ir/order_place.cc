#include "ir/order_place.h"

#include <algorithm>

#include "ir/select.h"

namespace piper {

SourceRange place_in_order(const TrainingDag& dag, DirectiveId by, NodeId first, NodeId second) {
  const SourceRange whole = dag.where(by, {"timeline"});
  if (!by.valid() || dag.origins[by.index()].elements.empty()) return whole;
  Selector selector(dag);
  const auto element_of = [&](NodeId id) -> SourceRange {
    for (const OrderElement& element : dag.origins[by.index()].elements)
      for (const Filter& filter : element.parts)
        if (auto nodes = selector.nodes(filter, "order");
            nodes && std::find(nodes->begin(), nodes->end(), id) != nodes->end())
          return element.where;
    return {};
  };
  const SourceRange from = element_of(first), to = element_of(second);
  if (!from || !to) return whole;
  return {from.file, std::min(from.begin, to.begin), std::max(from.end, to.end)};
}

}  // namespace piper
