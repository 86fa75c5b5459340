#include "capture/record/counted_mean.h"

#include <algorithm>

#include "capture/record/origin.h"

namespace piper {
namespace {

constexpr int64_t usual_ignore_index = -100;  // of torch.nn.functional
constexpr int64_t mean = 1;                   // at::Reduction

bool is_named(const std::string& full, std::string_view name) {
  return full == name || (full.starts_with(name) && full[name.size()] == '.');
}

int64_t integer_argument(const OperatorGraph& graph, const Call& call, std::string_view name) {
  const auto* number = std::get_if<int64_t>(find_argument(graph, call, name));
  return number ? *number : 0;
}

std::optional<CountedMean> counted_by_loss(const OperatorGraph& graph, const Call& call, CountedMean found) {
  if (integer_argument(graph, call, "reduction") != mean) return std::nullopt;
  const auto* weight = std::get_if<TensorId>(find_argument(graph, call, "weight"));
  if ((!weight || !weight->valid()) && integer_argument(graph, call, "ignore_index") == usual_ignore_index)
    found.left_out = usual_ignore_index;
  return found;
}

/// A call that asks which labels are left out.
bool compares_with_usual(const OperatorGraph& graph, const Call& call) {
  const std::string& name = graph[call.op].name;
  return (is_named(name, "aten::eq") || is_named(name, "aten::ne")) &&
         integer_argument(graph, call, "other") == usual_ignore_index;
}

std::optional<CountedMean> counted_by_division(const OperatorGraph& graph, const Argument& divisor, CountedMean found) {
  const auto* id = std::get_if<TensorId>(&divisor);
  if (!id || !id->valid() || element_count(graph[*id].layout) != 1) return std::nullopt;
  const Origin origin = origin_of(graph, *id);
  if (!origin.inputs || origin.parameters) return std::nullopt;
  const bool usual = std::any_of(origin.calls.begin(), origin.calls.end(),
                                 [&](CallId call) { return compares_with_usual(graph, graph[call]); });
  if (usual) found.left_out = usual_ignore_index;
  return found;
}

}  // namespace

std::vector<CountedMean> find_counted_means(const OperatorGraph& graph) {
  std::vector<CountedMean> out;
  for (const CallId id : origin_of(graph, graph.loss).calls) {
    const Call& call = graph[id];
    const std::string& name = graph[call.op].name;
    const CountedMean here{name, scope_name(graph, graph.segments[static_cast<size_t>(call.segment)].scope), {}};
    std::optional<CountedMean> found;
    if (name == "aten::nll_loss_forward" || name == "aten::nll_loss2d_forward")
      found = counted_by_loss(graph, call, here);
    else if (is_named(name, "aten::div") || is_named(name, "aten::div_"))
      found = counted_by_division(graph, call.arguments[1], here);
    else if (is_named(name, "aten::reciprocal"))
      found = counted_by_division(graph, call.arguments[0], here);
    if (found) out.push_back(*std::move(found));
  }
  return out;
}

}  // namespace piper
