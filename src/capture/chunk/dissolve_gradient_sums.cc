#include <unordered_map>

#include "capture/chunk/chunk_calls.h"

namespace piper {

OperatorGraph dissolve_gradient_sums(OperatorGraph graph) {
  std::unordered_map<TensorId, int> uses;
  for (const Call& call : graph.calls) each_tensor(call.arguments, [&](TensorId id) { ++uses[id]; });
  const auto is_sum = [&](TensorId id) {
    const CallId producer = graph[id].producer;
    return producer.valid() && graph[producer].between_nodes && graph[graph[producer].op].name == "aten::add.Tensor" &&
           uses[id] == 0;
  };
  std::vector<Contribution> contributions;
  for (const Contribution& gradient : graph.gradients) {
    std::vector<TensorId> open = {gradient.value};
    std::vector<TensorId> parts;  // last summand first
    while (!open.empty()) {
      const TensorId id = open.back();
      open.pop_back();
      if (!is_sum(id)) {
        parts.push_back(id);
        continue;
      }
      each_tensor(graph[graph[id].producer].arguments, [&](TensorId summand) {
        --uses[summand];
        open.push_back(summand);
      });
    }
    for (const TensorId part : parts) contributions.push_back({gradient.parameter, part});
  }
  graph.gradients = std::move(contributions);
  return graph;
}

}  // namespace piper
