#include <optional>

#include "capture/chunk/chunk_calls.h"

namespace piper {
namespace {

struct Slice {
  size_t dim = 0;
  int64_t start = 0, end = 0;
};

/// What the view shows, if it is a part of one dimension: in all others it has the sizes and strides of what it is of.
std::optional<Slice> as_slice(const TensorLayout& of, const TensorLayout& view) {
  if (of.sizes.size() != view.sizes.size() || of.sizes.empty()) return std::nullopt;
  std::optional<size_t> shorter;
  for (size_t d = 0; d < of.sizes.size(); ++d) {
    if (view.sizes[d] > 1 && view.strides[d] != of.strides[d]) return std::nullopt;
    if (view.sizes[d] == of.sizes[d]) continue;
    if (shorter) return std::nullopt;
    shorter = d;
  }
  const size_t dim = shorter.value_or(0);
  const int64_t from = view.offset - of.offset, stride = of.strides[dim];
  if (!shorter && from != 0) return std::nullopt;
  if (stride <= 0 || from < 0 || from % stride != 0) return std::nullopt;
  const int64_t start = from / stride, end = start + view.sizes[dim];
  if (end > of.sizes[dim]) return std::nullopt;
  return Slice{dim, start, end};
}

}  // namespace

OperatorGraph name_slices(OperatorGraph graph) {
  const OperatorId strided = find_operator(graph, "aten::as_strided"),
                   slice = operator_named(graph, "aten::slice.Tensor");
  if (!strided.valid()) return graph;
  for (Call& call : graph.calls) {
    if (call.op != strided) continue;
    const TensorId of = std::get<TensorId>(call.arguments[0]), view = std::get<TensorId>(call.results[0]);
    const auto part = as_slice(graph[of].layout, graph[view].layout);
    if (!part) continue;
    call.op = slice;
    call.arguments = {of, static_cast<int64_t>(part->dim), part->start, part->end, int64_t{1}};
  }
  return graph;
}

}  // namespace piper
