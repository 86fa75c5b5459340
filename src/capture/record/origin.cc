#include "capture/record/origin.h"

#include <algorithm>

#include "capture/record/computable.h"

namespace piper {

TensorOrigin origin_of(const OperatorGraph& graph, TensorId tensor) {
  TensorOrigin out;
  std::vector<char> wanted(graph.storages.size());
  const auto want = [&](TensorId id) {
    wanted[graph[id].storage.index()] = 1;
    out.inputs |= graph[id].kind == TensorKind::Input;
    out.parameters |= graph[id].kind == TensorKind::Parameter || graph[id].kind == TensorKind::Buffer;
  };
  want(tensor);
  for (size_t c = graph.calls.size(); c-- > 0;) {
    const Call& call = graph.calls[c];
    bool makes = false;
    each_tensor(call.results, [&](TensorId id) { makes |= wanted[graph[id].storage.index()] != 0; });
    for (const StorageId storage : call.writes) makes |= wanted[storage.index()] != 0;
    if (!makes) continue;
    out.calls.emplace_back(c);
    out.random |= call.random >= 0;
    each_tensor(call.arguments, want);
  }
  std::reverse(out.calls.begin(), out.calls.end());
  return out;
}

std::optional<at::Tensor> fixed_values(const OperatorGraph& graph, const OperatorTable& table, TensorId tensor) {
  const TensorOrigin origin = origin_of(graph, tensor);
  if (origin.inputs || origin.parameters || origin.random) return std::nullopt;
  return compute(graph, table, {tensor, origin.calls, {}}, {});
}

}  // namespace piper
