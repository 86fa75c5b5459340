#include "capture/record/operator_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/invariant.h"
#include "base/overloaded.h"

namespace piper {

int64_t element_count(const TensorLayout& layout) {
  int64_t count = 1;
  for (const int64_t size : layout.sizes) count *= size;
  return count;
}
bool is_contiguous(const TensorLayout& layout) {
  int64_t stride = 1;
  for (size_t d = layout.sizes.size(); d-- > 0;) {
    if (layout.sizes[d] > 1 && layout.strides[d] != stride) return false;
    stride *= layout.sizes[d];
  }
  return true;
}

OperatorId find_operator(const OperatorGraph& graph, std::string_view name) {
  for (size_t i = 0; i < graph.operators.size(); ++i)
    if (graph.operators[i].name == name) return OperatorId(i);
  return {};
}
OperatorId operator_named(const OperatorGraph& graph, std::string_view name) {
  const OperatorId found = find_operator(graph, name);
  invariant(found.valid(), "a recorded graph knows the operators that are put in");
  return found;
}

void find_producers(std::vector<GraphTensor>& tensors, const std::vector<Call>& calls) {
  for (GraphTensor& tensor : tensors) tensor.producer = CallId();
  for (size_t i = 0; i < calls.size(); ++i)
    each_tensor(calls[i].results, [&](TensorId id) {
      GraphTensor& tensor = tensors[id.index()];
      if (tensor.kind == TensorKind::Result && !tensor.producer.valid()) tensor.producer = CallId(i);
    });
}

const Argument* find_argument(const OperatorGraph& graph, const Call& call, std::string_view name) {
  const std::vector<std::string>& names = graph[call.op].arguments;
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? nullptr : &call.arguments[static_cast<size_t>(found - names.begin())];
}

bool is_view(const OperatorGraph& graph, const Call& call) {
  if (!call.writes.empty()) return false;
  bool some = false, all = true;
  each_tensor(call.results, [&](TensorId result) {
    some = true;
    bool shown = false;
    each_tensor(call.arguments, [&](TensorId argument) { shown |= graph[argument].storage == graph[result].storage; });
    all &= shown;
  });
  return some && all;
}

std::string scope_name(const OperatorGraph& graph, ScopeId scope) {
  if (!scope.valid()) return "model";
  const ScopeInstance& instance = graph[scope];
  const std::string own = fmt::format("{}.{}", instance.name, instance.index);
  return instance.parent.valid() ? scope_name(graph, instance.parent) + "." + own : own;
}

namespace {

std::string print(const OperatorGraph& graph, const Argument& argument, bool with_layout) {
  const auto tensor = [&](TensorId id) {
    if (!id.valid()) return std::string("undefined");
    const GraphTensor& t = graph[id];
    std::string out =
        t.kind == TensorKind::Result ? fmt::format("%{}", id.value) : fmt::format("%{}:{}", id.value, t.name);
    if (with_layout) out += fmt::format("[{}]@{}", fmt::join(t.layout.sizes, ","), t.storage.value);
    return out;
  };
  return std::visit(overloaded{
                        [](None) { return std::string("none"); },
                        [](bool value) { return std::string(value ? "true" : "false"); },
                        [](int64_t value) { return fmt::format("{}", value); },
                        [](double value) { return fmt::format("{}", value); },
                        [](const Ints& values) { return fmt::format("[{}]", fmt::join(values, ",")); },
                        [](const Bools& values) {
                          std::vector<int> bits(values.begin(), values.end());
                          return fmt::format("[{}]", fmt::join(bits, ","));
                        },
                        [](Opaque value) { return fmt::format("opaque{}", value.index); },
                        [](TargetDevice) { return std::string("device"); },
                        [](PartStart start) { return fmt::format("part of {}", start.size); },
                        [&](TensorId id) { return tensor(id); },
                        [&](const TensorList& list) {
                          std::vector<std::string> items;
                          for (const TensorId id : list.tensors) items.push_back(tensor(id));
                          return fmt::format("[{}]", fmt::join(items, ", "));
                        },
                    },
                    argument);
}

}  // namespace

std::string print(const OperatorGraph& graph) {
  std::string out;
  for (const Call& call : graph.calls) {
    std::vector<std::string> arguments, results;
    for (const Argument& argument : call.arguments) arguments.push_back(print(graph, argument, false));
    for (const Argument& result : call.results) results.push_back(print(graph, result, true));
    out += fmt::format("{} {}: {} = {}({})\n", call.backward ? "B" : "F",
                       scope_name(graph, graph.segments[static_cast<size_t>(call.segment)].scope),
                       fmt::join(results, ", "), graph[call.op].name, fmt::join(arguments, ", "));
  }
  return out;
}

}  // namespace piper
