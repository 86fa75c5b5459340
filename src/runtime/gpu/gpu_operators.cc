#include "runtime/gpu/gpu_operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>
#include <vector>

#include "runtime/cuda/draw.h"
#include "runtime/cuda/gradient_sums.h"
#include "runtime/cuda/logits.h"
#include "runtime/draw/draw_operator.h"
#include "runtime/frame.h"

namespace piper {
namespace {

std::optional<DType> data_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return DType::Float64;
    case at::kFloat:
      return DType::Float32;
    case at::kBFloat16:
      return DType::BFloat16;
    default:
      return std::nullopt;
  }
}

/// Whether our kernels know them.
bool has_kernel(std::optional<DType> into, std::optional<DType> of) {
  return into && of && *into != DType::BFloat16 && (*into == DType::Float64) == (*of == DType::Float64);
}

at::Tensor& add_sum_of_rows(at::Tensor& to, const at::Tensor& rows) {
  const auto into = data_type(to), of = data_type(rows);
  if (!has_kernel(into, of)) return to.add_(rows.sum(0).view(to.sizes()));
  const int64_t bytes = cuda::add_sum_of_rows_scratch(*into, rows.size(0), to.numel());
  const at::Tensor scratch = bytes > 0 ? at::empty({bytes}, to.options().dtype(at::kByte)) : at::Tensor();
  cuda::add_sum_of_rows(*into, *of, to.mutable_data_ptr(), rows.const_data_ptr(), rows.size(0), to.numel(),
                        bytes > 0 ? scratch.mutable_data_ptr() : nullptr, c10::cuda::getCurrentCUDAStream().stream());
  return to;
}

/// Where there is no kernel for the types, one by one.
void add_to_each(at::TensorList to, at::TensorList from) {
  const auto into = data_type(to[0]), of = data_type(from[0]);
  if (!has_kernel(into, of)) {
    for (size_t i = 0; i < to.size(); ++i) to[i].add_(from[i]);
    return;
  }
  std::vector<cuda::Addition> additions;
  for (size_t i = 0; i < to.size(); ++i)
    additions.push_back({to[i].mutable_data_ptr(), from[i].const_data_ptr(), to[i].numel()});
  cuda::add_to_each(*into, *of, additions, c10::cuda::getCurrentCUDAStream().stream());
}

cuda::Logits rows_of(const at::Tensor& logits) {
  return {*data_type(logits), logits.data_ptr(), logits.size(0), logits.size(1)};
}
/// Types without kernels are computed in float32.
at::Tensor logsumexp_of_rows(const at::Tensor& logits) {
  if (!data_type(logits)) return logsumexp_of_rows(logits.to(at::kFloat));
  at::Tensor out =
      at::empty({logits.size(0)}, logits.options().dtype(c10::promoteTypes(logits.scalar_type(), at::kFloat)));
  const at::Tensor rows = logits.contiguous();
  cuda::logsumexp_of_rows(rows_of(rows), out.mutable_data_ptr(), c10::cuda::getCurrentCUDAStream().stream());
  return out;
}
at::Tensor& softmax_gradient(at::Tensor& logits, const at::Tensor& logsumexp, const at::Tensor& targets,
                             const at::Tensor& gradient, int64_t first) {
  if (!data_type(logits) || !logits.is_contiguous()) {
    at::Tensor other = at::empty(logits.sizes(), logits.options().dtype(logsumexp.scalar_type())).copy_(logits);
    return logits.copy_(softmax_gradient(other, logsumexp, targets, gradient, first));
  }
  cuda::softmax_gradient(rows_of(logits), logsumexp.contiguous().const_data_ptr(),
                         targets.contiguous().const_data_ptr<int64_t>(), gradient.contiguous().const_data_ptr(), first,
                         c10::cuda::getCurrentCUDAStream().stream());
  return logits;
}

/// Words that are here are arguments of the kernel, as long as there are few.
void draw_on_gpu(const at::Tensor& into, int64_t kind, double a, double b, int64_t start, c10::IntArrayRef steps,
                 const at::Tensor& words) {
  DrawPlace place = place_in(into, start, steps);
  place.dims = joined(place.dims);
  const auto count = static_cast<size_t>(words.numel());
  const at::Tensor there = words.is_cpu() && count > cuda::most_words_here ? words.to(into.device()) : words;
  const auto* const given = reinterpret_cast<const uint64_t*>(there.const_data_ptr<int64_t>());
  cuda::draw({static_cast<Distribution>(kind), a, b}, *dtype_of(into.scalar_type()), into.mutable_data_ptr(), place,
             there.is_cpu() ? cuda::DrawWords{{given, count}} : cuda::DrawWords{{}, given},
             c10::cuda::getCurrentCUDAStream().stream());
}

}  // namespace

TORCH_LIBRARY_IMPL(piper, CUDA, m) {
  m.impl("draw_", draw_on_gpu);
  m.impl("add_to_each", add_to_each);
  m.impl("add_sum_of_rows", add_sum_of_rows);
  m.impl("logsumexp_of_rows", logsumexp_of_rows);
  m.impl("softmax_gradient_", softmax_gradient);
}

void provide_gpu_operators() {}  // whoever calls it is linked with the lines above

}  // namespace piper
