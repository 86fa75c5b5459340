#include "capture/record/known_bounds.h"

#include <string>
#include <variant>

namespace piper {

void KnownBounds::note(const Call& call) {
  for (const StorageId storage : call.writes) {
    uniform_.erase(storage);
    never_true_.erase(storage);
  }
  const std::string& name = graph_[call.op].name;
  if (name == "aten::rand" || name == "aten::rand.generator")
    return each_tensor(call.results, [&](TensorId id) { uniform_.insert(graph_[id].storage); });
  if (name != "aten::lt.Scalar" || !uniform_.contains(graph_[std::get<TensorId>(call.arguments[0])].storage)) return;
  const auto* whole = std::get_if<int64_t>(&call.arguments[1]);
  const auto* number = std::get_if<double>(&call.arguments[1]);
  if ((whole && *whole <= 0) || (number && *number <= 0))
    each_tensor(call.results, [&](TensorId id) { never_true_.insert(graph_[id].storage); });
}

}  // namespace piper
