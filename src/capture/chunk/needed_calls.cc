#include "capture/chunk/chunk_calls.h"

namespace piper {

std::vector<char> needed_calls(const OperatorGraph& graph, const std::vector<CallId>& calls, const Wanted& wanted) {
  Wanted live = wanted;
  for (const StorageId storage : wanted.storages) live.tensors.insert(graph[storage].base);
  for (const TensorId tensor : wanted.tensors) live.storages.insert(graph[tensor].storage);
  std::vector<char> needed(calls.size(), 0);
  for (size_t i = calls.size(); i-- > 0;) {
    const Call& call = graph[calls[i]];
    bool need = false;
    each_tensor(call.results, [&](TensorId result) { need |= live.tensors.contains(result); });
    for (const StorageId storage : call.writes)
      need |= live.storages.contains(storage) || graph[graph[storage].base].kind == TensorKind::Buffer;
    if (!need) continue;
    needed[i] = 1;
    each_tensor(call.arguments, [&](TensorId argument) {
      live.tensors.insert(argument);
      live.storages.insert(graph[argument].storage);
    });
  }
  return needed;
}

std::vector<CallId> live_calls(const OperatorGraph& graph) {
  Wanted wanted;
  wanted.tensors.insert(graph.loss);
  for (const Contribution& contribution : graph.gradients) wanted.tensors.insert(contribution.value);
  std::vector<CallId> all, live;
  for (size_t i = 0; i < graph.calls.size(); ++i) all.emplace_back(i);
  const std::vector<char> needed = needed_calls(graph, all, wanted);
  for (size_t i = 0; i < all.size(); ++i)
    if (needed[i]) live.push_back(all[i]);
  return live;
}

}  // namespace piper
