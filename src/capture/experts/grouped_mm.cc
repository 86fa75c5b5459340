#include "capture/experts/grouped_mm.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace piper {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool has_matrices(const Tensor& b) {
  return b.dim() == 3;
}

void check(const Tensor& a, const Tensor& b, const Tensor& ends) {
  TORCH_CHECK(a.dim() == 2 && (b.dim() == 2 || b.dim() == 3) && ends.dim() == 1,
              "grouped_mm: takes [rows, in], [groups, in, out] and ends [groups], or [in, rows], [rows, out] and ends; "
              "not ",
              a.sizes(), ", ", b.sizes(), " and ", ends.sizes());
  TORCH_CHECK(a.size(1) == b.size(has_matrices(b) ? 1 : 0), "grouped_mm: ", a.sizes(), " does not fit ", b.sizes());
  TORCH_CHECK(!has_matrices(b) || ends.size(0) == b.size(0), "grouped_mm: ", ends.size(0), " groups, but ", b.size(0),
              " matrices");
  TORCH_CHECK(a.scalar_type() == b.scalar_type() && ends.scalar_type() == at::kInt,
              "grouped_mm: takes two tensors of one type and int32 ends, not ", a.scalar_type(), ", ", b.scalar_type(),
              " and ", ends.scalar_type());
}

Tensor empty_result(const Tensor& a, const Tensor& b, const Tensor& ends) {
  check(a, b, ends);
  return has_matrices(b) ? at::empty({a.size(0), b.size(2)}, a.options())
                         : at::empty({ends.size(0), a.size(0), b.size(1)}, a.options());
}

/// What PyTorch's kernel for GPUs takes: one of the last two strides is 1, the other a multiple of 16 bytes.
bool is_aligned(const Tensor& matrix) {
  constexpr int64_t alignment = 16;
  const int64_t rows = matrix.stride(-2), columns = matrix.stride(-1);
  const auto whole = [&](int64_t stride) { return stride * matrix.element_size() % alignment == 0; };
  return (columns == 1 && whole(rows)) || (rows == 1 && whole(columns));
}
bool has_kernel(const Tensor& a, const Tensor& b, const Tensor& result) {
  return a.is_cuda() && a.scalar_type() == at::kBFloat16 && is_aligned(a) && is_aligned(b) && is_aligned(result);
}

/// Calls f(group, first row, number of rows); the number of rows in front of the last end.
template <class F>
int64_t each_group(const Tensor& ends, int64_t rows, F f) {
  const Tensor here = ends.cpu().contiguous();
  const int* end = here.const_data_ptr<int>();
  int64_t first = 0;
  for (int64_t group = 0; group < here.size(0); ++group) {
    TORCH_CHECK(end[group] >= first && end[group] <= rows, "grouped_mm: group ", group, " of ", rows, " rows is [",
                first, ", ", end[group], ")");
    f(group, first, end[group] - first);
    first = end[group];
  }
  return first;
}

Tensor multiply(const Tensor& a, const Tensor& b, const Tensor& ends) {
  Tensor out = empty_result(a, b, ends);
  if (has_kernel(a, b, out)) return at::_grouped_mm(a, b, ends);
  if (has_matrices(b)) {
    const int64_t used = each_group(ends, a.size(0), [&](int64_t group, int64_t first, int64_t count) {
      if (count == 0) return;
      Tensor part = out.narrow(0, first, count);
      at::mm_out(part, a.narrow(0, first, count), b.select(0, group));
    });
    out.narrow(0, used, out.size(0) - used).zero_();
  } else {
    each_group(ends, b.size(0), [&](int64_t group, int64_t first, int64_t count) {
      Tensor part = out.select(0, group);
      if (count == 0)
        part.zero_();
      else
        at::mm_out(part, a.narrow(1, first, count), b.narrow(0, first, count));
    });
  }
  return out;
}

/// The result as `like` lies in memory: a transposed matrix has a transposed gradient, which is added as it is.
Tensor over_rows(const Tensor& a, const Tensor& b, const Tensor& ends, const Tensor& like) {
  if (like.stride(1) == 1 && like.stride(2) != 1) return grouped_mm(b.t(), a.t(), ends).transpose(1, 2);
  return grouped_mm(a, b, ends);
}

struct GroupedMm : torch::autograd::Function<GroupedMm> {
  static Tensor forward(AutogradContext* context, const Tensor& a, const Tensor& b, const Tensor& ends) {
    context->save_for_backward({a, b, ends});
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return grouped_mm(a, b, ends);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &a = saved[0], &b = saved[1], &ends = saved[2], &gradient = gradients[0];
    TORCH_CHECK(has_matrices(b), "grouped_mm: products over rows have no gradient");
    Tensor for_a, for_b;
    if (context->needs_input_grad(0)) for_a = grouped_mm(gradient, b.transpose(1, 2), ends);
    if (context->needs_input_grad(1)) for_b = over_rows(a.t(), gradient, ends, b);
    return {for_a, for_b, {}};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(piper, m) {
  m.def("grouped_mm(Tensor a, Tensor b, Tensor ends) -> Tensor");
}
TORCH_LIBRARY_IMPL(piper, CompositeExplicitAutograd, m) {
  m.impl("grouped_mm", multiply);
}
TORCH_LIBRARY_IMPL(piper, Meta, m) {
  m.impl("grouped_mm", empty_result);
}
TORCH_LIBRARY_IMPL(piper, Autograd, m) {
  m.impl("grouped_mm",
         [](const Tensor& a, const Tensor& b, const Tensor& ends) { return GroupedMm::apply(a, b, ends); });
}

at::Tensor grouped_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("piper::grouped_mm", "")
                             .typed<Tensor(const Tensor&, const Tensor&, const Tensor&)>();
  return op.call(a, b, ends);
}

}  // namespace piper
