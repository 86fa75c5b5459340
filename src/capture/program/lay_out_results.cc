#include "capture/program/lay_out_results.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <algorithm>

namespace piper {
namespace {

at::Tensor lay_out(const at::Tensor& given, at::IntArrayRef strides) {
  return at::empty_strided(given.sizes(), strides, given.options()).copy_(given);
}

Diagnostic cannot_be_had(const std::string& chunk, const std::string& name, const std::string& why) {
  return error(ErrorCode::E609, {}, fmt::format("{}: {} {}", chunk, name, why))
      .help(
          "plans are made from the shapes that PyTorch's rules give for an operator, so its kernel must give the same")
      .help("write it with other operators");
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(piper, m) {
  m.def("lay_out(Tensor given, int[] strides) -> Tensor");
}
TORCH_LIBRARY_IMPL(piper, CompositeExplicitAutograd, m) {
  m.impl("lay_out", lay_out);
}

void provide_lay_out() {}

Result<ChunkIr> lay_out_results(ChunkIr body, const std::string& chunk, const OperatorGraph& graph,
                                const OperatorTable& table, TriedCalls& tried) {
  const OperatorId lay_out = operator_named(graph, "piper::lay_out");
  std::vector<Call> calls;
  const auto copied = [&](TensorId recorded, const GivenTensor& given) {
    const StorageId storage(body.storages.size());
    const TensorId id(body.tensors.size());
    body.storages.push_back({given.bytes, id});
    body.tensors.push_back({TensorKind::Result, storage, given.layout, CallId(), "", -1});
    Call copy;
    copy.op = lay_out;
    copy.arguments = {id, body[recorded].layout.strides};
    copy.results = {recorded};
    return std::pair(id, std::move(copy));
  };
  for (const Call& recorded : body.calls) {
    if (!recorded.op.valid() || recorded.op == lay_out || is_view(body, recorded)) {
      calls.push_back(recorded);
      continue;
    }
    const TriedCall& seen = tried.find(body, recorded, table);
    if (!seen.problem.empty()) return cannot_be_had(chunk, graph[recorded.op].name, seen.problem);
    Call call = recorded;
    std::vector<Call> copies;
    size_t at = 0;
    const auto replace = [&](TensorId& id) {
      const size_t result = at++;
      if (result >= seen.otherwise.size() || !seen.otherwise[result]) return;
      auto [given, copy] = copied(id, *seen.otherwise[result]);
      copy.segment = call.segment;
      copy.backward = call.backward;
      copy.side_stream = call.side_stream;
      copies.push_back(std::move(copy));
      id = given;
    };
    for (Argument& result : call.results) {
      if (auto* one = std::get_if<TensorId>(&result)) replace(*one);
      if (auto* list = std::get_if<TensorList>(&result))
        std::for_each(list->tensors.begin(), list->tensors.end(), replace);
    }
    calls.push_back(std::move(call));
    for (Call& copy : copies) calls.push_back(std::move(copy));
  }
  body.calls = std::move(calls);
  find_producers(body.tensors, body.calls);
  return body;
}

Checked check_results_without_elements(const OperatorGraph& graph, const OperatorTable& table, TriedCalls& tried) {
  const auto has_elements = [&](TensorId id) { return element_count(graph[id].layout) > 0; };
  ChunkIr all;
  for (const Call& call : graph.calls) {
    bool suspect = false;
    each_tensor(call.results, [&](TensorId id) { suspect |= !has_elements(id); });
    each_tensor(call.arguments, [&](TensorId id) { suspect = suspect && has_elements(id); });
    if (!suspect || is_view(graph, call)) continue;
    if (all.tensors.empty()) {
      all.tensors = graph.tensors;
      all.storages = graph.storages;
    }
    if (const TriedCall& seen = tried.find(all, call, table); !seen.problem.empty())
      return cannot_be_had(scope_name(graph, graph.segments[static_cast<size_t>(call.segment)].scope),
                           graph[call.op].name, seen.problem);
  }
  return Ok{};
}

}  // namespace piper
