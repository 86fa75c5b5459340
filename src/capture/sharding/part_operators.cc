#include "capture/sharding/part_operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "capture/sharding/in_part.h"

namespace piper {
namespace {

at::Tensor take_rows(const at::Tensor& table, const at::Tensor& indices, int64_t first) {
  InPart part(indices, first, table.size(0));
  at::Tensor rows = at::embedding(table, part.or_else(0));
  return rows.masked_fill_(part.elsewhere.unsqueeze(-1), 0);
}

/// ATen leaves out the index that is said to be padding: here one that no row has.
at::Tensor take_rows_backward(const at::Tensor& gradient, const at::Tensor& indices, at::IntArrayRef size,
                              int64_t padding, int64_t first) {
  InPart part(indices, first, size[0]);
  if (padding >= 0) part.elsewhere.logical_or_(indices.eq(padding));
  return at::embedding_dense_backward(gradient, part.or_else(-1), size[0], -1, false);
}

at::Tensor take_columns(const at::Tensor& scores, const at::Tensor& indices, int64_t ignored, int64_t first) {
  InPart part(indices, first, scores.size(1));
  part.elsewhere.logical_or_(indices.eq(ignored));
  at::Tensor taken = scores.gather(1, part.or_else(0).unsqueeze(1));
  return taken.squeeze_(1).masked_fill_(part.elsewhere, 0);
}

at::Tensor take_columns_backward(const at::Tensor& gradient, const at::Tensor& indices, at::IntArrayRef size,
                                 int64_t first) {
  InPart part(indices, first, size[1]);
  const at::Tensor zeros = at::zeros(size, gradient.options());
  return zeros.scatter_(1, part.or_else(0).unsqueeze(1), gradient.masked_fill(part.elsewhere, 0).unsqueeze(1));
}

/// Where a part lies in the whole: so many pieces of so many, from these on.
struct Pieces {
  Pieces(int64_t whole, int64_t part, int64_t first, bool zigzag) : size(part), begins{first} {
    if (!zigzag || part == whole) return;
    size = part / 2;
    const int64_t before = first / part * size;
    begins = {before, whole - before - size};
  }
  int64_t size;
  std::vector<int64_t> begins;
};

at::Tensor local_slice(const at::Tensor& all, at::IntArrayRef size, int64_t first, int64_t dim, int64_t outer,
                       int64_t inner, bool zigzag) {
  const int64_t whole = all.size(dim) / (outer * inner), part = size[static_cast<size_t>(dim)] / (outer * inner);
  const Pieces pieces(whole, part, first, zigzag);
  const at::Tensor from = all.unflatten(dim, {outer, whole, inner});
  std::vector<at::Tensor> taken;
  for (const int64_t begin : pieces.begins) taken.push_back(from.narrow(dim + 1, begin, pieces.size));
  if (taken.size() > 1) return at::cat(taken, dim + 1).flatten(dim, dim + 2);
  return taken[0].flatten(dim, dim + 2).clone(at::MemoryFormat::Contiguous);
}

at::Tensor local_slice_backward(const at::Tensor& part, at::IntArrayRef size, int64_t first, int64_t dim, int64_t outer,
                                int64_t inner, bool zigzag) {
  const int64_t whole = size[static_cast<size_t>(dim)] / (outer * inner), own = part.size(dim) / (outer * inner);
  const Pieces pieces(whole, own, first, zigzag);
  at::Tensor all = at::zeros(size, part.options());
  const at::Tensor from = part.unflatten(dim, {outer, own, inner}), to = all.unflatten(dim, {outer, whole, inner});
  for (size_t i = 0; i < pieces.begins.size(); ++i)
    to.narrow(dim + 1, pieces.begins[i], pieces.size)
        .copy_(from.narrow(dim + 1, static_cast<int64_t>(i) * pieces.size, pieces.size));
  return all;
}

at::Tensor times_parts(const at::Tensor& number, const at::Tensor& part, int64_t all) {
  return number.mul(static_cast<double>(all) / static_cast<double>(part.numel()));
}

at::Tensor counted_share(const at::Tensor& all, const at::Tensor& part, int64_t ignored, at::ScalarType type) {
  const double parts = static_cast<double>(all.numel()) / static_cast<double>(part.numel());
  return all.ne(ignored).sum(type).div_(parts);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(piper, m) {
  m.def("take_rows(Tensor table, Tensor indices, int first) -> Tensor");
  m.def("take_rows_backward(Tensor gradient, Tensor indices, int[] size, int padding, int first) -> Tensor");
  m.def("take_columns(Tensor scores, Tensor indices, int ignored, int first) -> Tensor");
  m.def("take_columns_backward(Tensor gradient, Tensor indices, int[] size, int first) -> Tensor");
  m.def(
      "local_slice_backward(Tensor part, int[] size, int first, int dim, int outer, int inner, bool zigzag) -> Tensor");
  m.def("times_parts(Tensor number, Tensor part, int all) -> Tensor");
  m.def("counted_share(Tensor all, Tensor part, int ignored, ScalarType dtype) -> Tensor");
  m.def("local_slice(Tensor all, int[] size, int first, int dim, int outer, int inner, bool zigzag) -> Tensor");
}
TORCH_LIBRARY_IMPL(piper, CompositeExplicitAutograd, m) {
  m.impl("take_rows", take_rows);
  m.impl("take_rows_backward", take_rows_backward);
  m.impl("take_columns", take_columns);
  m.impl("take_columns_backward", take_columns_backward);
  m.impl("times_parts", times_parts);
  m.impl("counted_share", counted_share);
  m.impl("local_slice", local_slice);
  m.impl("local_slice_backward", local_slice_backward);
}
TORCH_LIBRARY_IMPL(piper, Meta, m) {
  m.impl("take_rows", [](const at::Tensor& table, const at::Tensor& indices, int64_t) {
    std::vector<int64_t> sizes = indices.sizes().vec();
    sizes.push_back(table.size(1));
    return at::empty(sizes, table.options());
  });
  m.impl("take_rows_backward", [](const at::Tensor& gradient, const at::Tensor&, at::IntArrayRef size, int64_t,
                                  int64_t) { return at::empty(size, gradient.options()); });
  m.impl("take_columns", [](const at::Tensor& scores, const at::Tensor&, int64_t, int64_t) {
    return at::empty({scores.size(0)}, scores.options());
  });
  m.impl("take_columns_backward", [](const at::Tensor& gradient, const at::Tensor&, at::IntArrayRef size, int64_t) {
    return at::empty(size, gradient.options());
  });
  m.impl("times_parts", [](const at::Tensor& number, const at::Tensor&, int64_t) { return at::empty_like(number); });
  m.impl("counted_share", [](const at::Tensor& all, const at::Tensor&, int64_t, at::ScalarType type) {
    return at::empty({}, all.options().dtype(type));
  });
  for (const char* name : {"local_slice", "local_slice_backward"})
    m.impl(name, [](const at::Tensor& from, at::IntArrayRef size, int64_t, int64_t, int64_t, int64_t, bool) {
      return at::empty(size, from.options());
    });
}

void provide_part_operators() {}

}  // namespace piper
