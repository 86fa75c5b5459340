#include "capture/sharding/partial_sums.h"

#include <c10/core/ScalarType.h>

#include <algorithm>

#include "capture/sharding/operator_rules.h"

namespace piper {

int count_marks(const TensorLabels& labels, Mark mark) {
  int count = 0;
  for (const Factors& dim : labels.dims)
    count += static_cast<int>(std::count_if(dim.begin(), dim.end(), [&](const Factor& f) { return f.mark == mark; }));
  return count;
}

bool sums_over(const OperatorGraph& graph, const BodyLabels& labels, const Call& call, TensorId result, Mark mark) {
  const OperatorRule rule = rule_of(graph[call.op]);
  if (rule.dims == DimRule::Product || rule.dims == DimRule::GroupedProduct) {
    const size_t left = rule.name == "addmm" || rule.name == "baddbmm" ? 1 : 0;
    return has(labels.tensors[std::get<TensorId>(call.arguments[left]).index()].dims.back(), mark);
  }
  if (!rule.adds_up) return false;
  TensorId first;
  each_tensor(call.arguments, [&](TensorId id) {
    if (!first.valid()) first = id;
  });
  if (rule.dims == DimRule::Attention) first = std::get<TensorId>(*find_argument(graph, call, "query"));
  if (rule.name == "logits_in_blocks_backward" && std::get<TensorId>(call.results[1]) == result)  // of the table
    first = std::get<TensorId>(*find_argument(graph, call, "hidden"));
  return count_marks(labels.tensors[first.index()], mark) > count_marks(labels.tensors[result.index()], mark);
}

bool is_maximum(const OperatorGraph& graph, const Call& call) {
  const std::string name = base_name(graph[call.op]);
  return name == "amax" || name == "logits_in_blocks_max";
}

bool keeps_partial_sums(const OperatorGraph& graph, const std::vector<GraphTensor>& tensors, const BodyLabels& labels,
                        const Call& call) {
  const OperatorRule rule = rule_of(graph[call.op]);
  int partial = 0, all = 0;
  bool sharded = false;
  const auto look = [&](TensorId id) { sharded = sharded || has(labels.tensors[id.index()], Mark::Sharded); };
  each_tensor(call.arguments, look);
  each_tensor(call.results, look);
  bool maxima = false;
  each_tensor(call.arguments, [&](TensorId id) {
    ++all;
    partial += labels.tensors[id.index()].sums_divided;
    maxima = maxima || labels.tensors[id.index()].are_maxima;
  });
  if (rule.name == "add_" && tensors[std::get<TensorId>(call.arguments[0]).index()].kind == TensorKind::Buffer)
    return true;                        // gradients add up
  if (sharded || maxima) return false;  // a part of a sum times a part of another tensor is nothing that adds up
  const auto ends_with = [&](std::string_view overload) { return graph[call.op].name.ends_with(overload); };
  if (rule.terms == TermRule::Sum) return partial == all && !ends_with(".Scalar");  // every part would get the number
  if (rule.terms == TermRule::LinearInFirst)
    return partial == 1 && labels.tensors[std::get<TensorId>(call.arguments[0]).index()].sums_divided;
  if (rule.terms != TermRule::Linear || partial != 1 || ends_with("_mode")) return false;  // division that rounds
  if (rule.name == "_to_copy") {
    const TensorId result = std::get<TensorId>(call.results[0]);
    return c10::isFloatingType(static_cast<c10::ScalarType>(tensors[result.index()].layout.element));
  }
  if (rule.name != "div") return true;
  const auto* divisor = std::get_if<TensorId>(&call.arguments[1]);
  return !divisor || !divisor->valid() || !labels.tensors[divisor->index()].sums_divided;
}

}  // namespace piper
