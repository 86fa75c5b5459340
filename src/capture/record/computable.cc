#include "capture/record/computable.h"

#include <algorithm>
#include <set>

namespace piper {
namespace {

/// Runs calls on values, on the host.
class Replay {
 public:
  Replay(const OperatorGraph& graph, const OperatorTable& table, std::map<TensorId, at::Tensor> given = {})
      : graph_(graph), table_(table), made_(std::move(given)) {}

  void run(const Call& call) {
    torch::jit::Stack stack;
    for (const Argument& argument : call.arguments) stack.push_back(value_of(argument));
    table_.operators[call.op.index()].callBoxed(&stack);
    for (size_t i = 0; i < call.results.size(); ++i) take(call.results[i], stack[i]);
  }
  at::Tensor tensor(TensorId id) {
    if (!id.valid()) return {};
    if (graph_[id].kind == TensorKind::Constant) return placed_constant(table_, graph_[id].constant, c10::kCPU);
    return made_.at(id);
  }

 private:
  c10::IValue value_of(const Argument& argument) {
    if (const auto* id = std::get_if<TensorId>(&argument)) return tensor(*id);
    const auto* list = std::get_if<TensorList>(&argument);
    if (!list) return to_ivalue(table_, argument, c10::kCPU);
    if (!list->optional) {
      c10::List<at::Tensor> items;
      for (const TensorId id : list->tensors) items.push_back(tensor(id));
      return items;
    }
    c10::List<std::optional<at::Tensor>> items;
    for (const TensorId id : list->tensors) items.push_back(id.valid() ? std::optional(tensor(id)) : std::nullopt);
    return items;
  }
  void take(const Argument& result, const c10::IValue& value) {
    if (const auto* id = std::get_if<TensorId>(&result)) {
      if (id->valid()) made_[*id] = value.toTensor();
    } else if (const auto* list = std::get_if<TensorList>(&result)) {
      const std::vector<at::Tensor> tensors = value.toTensorVector();
      for (size_t i = 0; i < tensors.size(); ++i)
        if (list->tensors[i].valid()) made_[list->tensors[i]] = tensors[i];
    }
  }

  const OperatorGraph& graph_;
  const OperatorTable& table_;
  std::map<TensorId, at::Tensor> made_;
};

}  // namespace

Computable computable(const OperatorGraph& graph, TensorId tensor, CallId before, const std::vector<TensorId>& given) {
  Computable out{tensor, {}, {}};
  std::vector<char> wanted(graph.storages.size());
  std::set<TensorId> inputs;
  const auto want = [&](TensorId id) {
    wanted[graph[id].storage.index()] = 1;
    if (graph[id].kind == TensorKind::Input) inputs.insert(id);
  };
  const auto is_given = [&](TensorId id) { return std::find(given.begin(), given.end(), id) != given.end(); };
  want(tensor);
  for (size_t c = before.index(); c-- > 0;) {
    const Call& call = graph.calls[c];
    bool makes = false, known = call.writes.empty();
    each_tensor(call.results, [&](TensorId id) {
      makes |= wanted[graph[id].storage.index()] != 0;
      known &= is_given(id);
    });
    for (const StorageId storage : call.writes) makes |= wanted[storage.index()] != 0;
    if (!makes || known) continue;
    out.calls.emplace_back(c);
    each_tensor(call.arguments, want);
  }
  std::reverse(out.calls.begin(), out.calls.end());
  out.inputs.assign(inputs.begin(), inputs.end());
  return out;
}

at::Tensor compute(const OperatorGraph& graph, const OperatorTable& table, const Computable& what,
                   const std::map<TensorId, at::Tensor>& given) {
  Replay replay(graph, table, given);
  for (const CallId call : what.calls) replay.run(graph[call]);
  return replay.tensor(what.tensor);
}

}  // namespace piper
