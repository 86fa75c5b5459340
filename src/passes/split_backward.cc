// split_backward: B becomes BI (what other chunks wait for) and BW (the rest).
//   before:  %b = compute layer.0 B mb=0
//   after:   %b = compute layer.0 BI mb=0        %w = compute layer.0 BW mb=0 <- %b:kept
// Illegal: a chunk whose model does not say how (E306).
#include <fmt/format.h>

#include <algorithm>

#include "ir/select.h"
#include "passes/passes.h"

namespace piper {
namespace {

bool names_half(const Filter& filter) {
  const TagCondition* pass = filter.find("pass");
  return pass && std::any_of(pass->words.begin(), pass->words.end(),
                             [](const std::string& word) { return word == "BI" || word == "BW"; });
}

/// Backward nodes that some order wants in two parts.
Result<std::vector<char>> wanted(const TrainingDag& dag, const std::vector<const Order*>& orders) {
  std::vector<char> split(dag.nodes.size(), 0);
  Selector selector(dag);
  const ComputeIndex index(dag);
  for (const Order* order : orders) {
    for (const OrderElement& element : order->elements) {
      for (const Filter& filter : element.parts) {
        if (filter.find("comm") || !names_half(filter)) continue;
        PIPER_TRY(const auto chunks, selector.chunks(filter, "order"));
        PIPER_TRY(const auto slices, selector.slices(filter, "order"));
        for (const ChunkId chunk : chunks) {
          if ((*dag.model)[chunk].find(Pass::B) && !backward_parts((*dag.model)[chunk]))
            return error(ErrorCode::E306, filter.where,
                         fmt::format("order: the model does not say how backward of chunk {} splits into BI and BW",
                                     (*dag.model)[chunk].name))
                .help("use pass=B, or describe BI and BW in the model");
          for (const int slice : slices)
            if (const NodeId id = index.find(chunk, Pass::B, slice); id.valid()) split[id.index()] = 1;
        }
      }
    }
  }
  return split;
}

bool has(const PassWork* work, std::vector<ValueId> PassWork::*list, Item item) {
  return work && item.is_value() &&
         std::find((work->*list).begin(), (work->*list).end(), item.value_id()) != (work->*list).end();
}

}  // namespace

Result<TrainingDag> split_backward(TrainingDag dag, const std::vector<const Order*>& orders) {
  PIPER_TRY(const std::vector<char> split, wanted(dag, orders));
  if (std::find(split.begin(), split.end(), 1) == split.end()) return dag;
  const size_t nodes = dag.nodes.size();
  std::vector<NodeId> weight_part(nodes);
  std::vector<BackwardParts> parts(nodes);
  for (size_t n = 0; n < nodes; ++n) {
    if (!split[n]) continue;
    parts[n] = *backward_parts((*dag.model)[dag.nodes[n].tags.chunk]);
    if (!parts[n].input) {  // all of it is BW
      dag.nodes[n].tags.pass = Pass::BW;
      weight_part[n] = NodeId(n);
      continue;
    }
    dag.nodes[n].tags.pass = Pass::BI;
    if (!parts[n].weight) continue;
    Node node = dag.nodes[n];
    node.tags.pass = Pass::BW;
    node.made_from = NodeId(n);
    weight_part[n] = dag.add(std::move(node));
  }
  std::vector<Edge> edges;
  edges.reserve(dag.edges.size() * 2);
  for (const Edge& edge : dag.edges) {
    const bool from_split = split[edge.from.index()] && weight_part[edge.from.index()].valid();
    const bool from_weight = from_split && has(parts[edge.from.index()].weight, &PassWork::writes, edge.item);
    const NodeId from = from_weight ? weight_part[edge.from.index()] : edge.from;
    if (!split[edge.to.index()] || !weight_part[edge.to.index()].valid()) {
      edges.push_back({from, edge.to, edge.item, edge.made_by});
      continue;
    }
    const BackwardParts& to = parts[edge.to.index()];
    if (has(to.input, &PassWork::reads, edge.item)) edges.push_back({from, edge.to, edge.item, edge.made_by});
    if (has(to.weight, &PassWork::reads, edge.item))
      edges.push_back({from, weight_part[edge.to.index()], edge.item, edge.made_by});
  }
  for (size_t n = 0; n < nodes; ++n) {
    if (!split[n] || !weight_part[n].valid() || weight_part[n] == NodeId(n)) continue;
    bool kept = false;
    for (const ValueId value : parts[n].input->writes) {
      if (!has(parts[n].weight, &PassWork::reads, Item::value(value))) continue;
      edges.push_back({NodeId(n), weight_part[n], Item::value(value), {}});
      kept = true;
    }
    if (!kept) edges.push_back({NodeId(n), weight_part[n], Item{}, {}});
  }
  dag.edges = std::move(edges);
  return dag;
}

}  // namespace piper
