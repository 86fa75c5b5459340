#include "base/invariant.h"
#include "capture/chunk/chunk_calls.h"

namespace piper {
namespace {

/// The results of a call that its mask switches on, as two lists: the first result, and the others.
struct MaskedCall {
  size_t mask = 0;  // index of the argument
  bool first = false, others = false;
};

MaskedCall masked(const OperatorGraph& graph, const Call& call) {
  MaskedCall found;
  const Argument* mask = find_argument(graph, call, "output_mask");
  if (!mask || !std::holds_alternative<Bools>(*mask) || call.results.size() < 2) return found;
  found.mask = static_cast<size_t>(mask - call.arguments.data());
  for (size_t i = 0; i < call.results.size(); ++i) {
    const auto* result = std::get_if<TensorId>(&call.results[i]);
    if (result && result->valid()) (i == 0 ? found.first : found.others) = true;
  }
  return found;
}

/// The call with only those results for which `keep(index)` holds.
template <class Keep>
Call part_of(Call call, size_t mask, Keep keep) {
  Bools bits = std::get<Bools>(call.arguments[mask]);
  for (size_t i = 0; i < bits.size(); ++i)
    if (!keep(i)) {
      bits[i] = false;
      call.results[i] = TensorId();
    }
  call.arguments[mask] = bits;
  return call;
}

}  // namespace

std::optional<std::pair<Call, Call>> halves_of(const OperatorGraph& graph, const Call& call) {
  const MaskedCall found = masked(graph, call);
  if (!found.first || !found.others) return std::nullopt;
  const auto half = [&](bool input) { return part_of(call, found.mask, [&](size_t i) { return (i == 0) == input; }); };
  return std::pair(half(true), half(false));
}

std::vector<CallId> split_masks(OperatorGraph& graph, const std::vector<CallId>& calls) {
  std::vector<CallId> out;
  for (const CallId id : calls) {
    auto halves = halves_of(graph, graph[id]);
    if (!halves) {
      out.push_back(id);
      continue;
    }
    for (Call* half : {&halves->first, &halves->second}) {
      out.emplace_back(graph.calls.size());
      graph.calls.push_back(std::move(*half));
    }
  }
  return out;
}

std::vector<char> input_half(const OperatorGraph& graph, const std::vector<CallId>& calls, const Wanted& by_others) {
  Wanted wanted = by_others;
  while (true) {
    std::vector<char> half = needed_calls(graph, calls, wanted);
    const size_t before = wanted.tensors.size();
    const auto pull = [&](const Call& call) {
      each_tensor(call.results, [&](TensorId result) { wanted.tensors.insert(result); });
    };
    // BW runs after all of BI: it must not read what BI overwrites later, nor write what it did not make itself
    std::unordered_set<StorageId> overwritten, made_by_weight_half;
    for (size_t i = calls.size(); i-- > 0;) {
      const Call& call = graph[calls[i]];
      if (half[i]) {
        overwritten.insert(call.writes.begin(), call.writes.end());
        continue;
      }
      each_tensor(call.arguments, [&](TensorId argument) {
        if (overwritten.contains(graph[argument].storage)) pull(call);
      });
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      const Call& call = graph[calls[i]];
      if (half[i]) continue;
      if (!is_view(graph, call) && call.writes.empty())
        each_tensor(call.results, [&](TensorId result) { made_by_weight_half.insert(graph[result].storage); });
      for (const StorageId storage : call.writes)
        if (!made_by_weight_half.contains(storage)) pull(call);
    }
    if (wanted.tensors.size() == before) return half;
  }
}

}  // namespace piper
