#include "capture/record/shape_rules.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/result_type.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/invariant.h"

namespace piper {
namespace {

using c10::IValue;
using torch::jit::Stack;

/// The arguments of one call by name, and the way to its results.
struct Arguments {
  const c10::OperatorHandle& op;
  Stack& stack;

  const IValue& operator[](std::string_view name) const {
    const auto& arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].name() == name) return stack[stack.size() - arguments.size() + i];
    internal_error(fmt::format("{} has no argument {}", op.operator_name().name, name));
  }
  const at::Tensor& tensor(std::string_view name) const { return (*this)[name].toTensor(); }
  bool has(std::string_view name) const { return (*this)[name].isTensor() && tensor(name).defined(); }
  int64_t dim(std::string_view name, int64_t rank) const {
    const int64_t dim = (*this)[name].toInt();
    return dim < 0 ? dim + rank : dim;
  }

  void give(std::vector<IValue> results) const {
    stack.resize(stack.size() - op.schema().arguments().size());
    for (IValue& result : results) stack.push_back(std::move(result));
  }
};

IValue meta(c10::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().device(at::kMeta));
}
IValue meta(c10::IntArrayRef sizes, const at::Tensor& like, c10::ScalarType dtype) {
  return at::empty(sizes, like.options().device(at::kMeta).dtype(dtype));
}
/// Dense, with the dimensions in memory ordered as those of another tensor are.
IValue like_order(const at::Tensor& like, c10::IntArrayRef sizes) {
  std::vector<int64_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return like.stride(a) > like.stride(b); });
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[static_cast<size_t>(*d)] = stride;
    stride *= sizes[static_cast<size_t>(*d)];
  }
  return at::empty_strided(sizes, strides, like.options().device(at::kMeta));
}
IValue undefined() {
  return at::Tensor();
}

void embedding(const Arguments& call) {
  std::vector<int64_t> sizes = call.tensor("indices").sizes().vec();
  sizes.push_back(call.tensor("weight").size(1));
  call.give({meta(sizes, call.tensor("weight"))});
}

void embedding_dense_backward(const Arguments& call) {
  const at::Tensor& gradient = call.tensor("grad_output");
  call.give({meta({call["num_weights"].toInt(), gradient.size(-1)}, gradient)});
}

void index_select(const Arguments& call) {
  const at::Tensor& self = call.tensor("self");
  std::vector<int64_t> sizes = self.sizes().vec();
  if (!sizes.empty()) sizes[static_cast<size_t>(call.dim("dim", self.dim()))] = call.tensor("index").numel();
  call.give({meta(sizes, self)});
}

/// What a norm finds out about its input: one number for all that it is taken over.
IValue statistics(const Arguments& call, c10::ScalarType type) {
  const at::Tensor& input = call.tensor("input");
  std::vector<int64_t> sizes = input.sizes().vec();
  for (size_t i = sizes.size() - call["normalized_shape"].toIntVector().size(); i < sizes.size(); ++i) sizes[i] = 1;
  return meta(sizes, input, type);
}
/// In which GPUs, and the attention of all targets, add up.
c10::ScalarType wide(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void native_layer_norm(const Arguments& call) {
  const at::Tensor& input = call.tensor("input");
  // statistics have the type of the weights if that is wider
  const c10::ScalarType type = call.has("weight") ? call.tensor("weight").scalar_type() : input.scalar_type();
  call.give({meta(input.sizes(), input), statistics(call, type), statistics(call, type)});
}
void native_layer_norm_of_gpu(const Arguments& call) {
  const at::Tensor& input = call.tensor("input");
  call.give({meta(input.sizes(), input), statistics(call, wide(input)), statistics(call, wide(input))});
}

void native_layer_norm_backward(const Arguments& call) {
  const auto mask = call["output_mask"].toBoolList();
  const auto gradient_of = [&](const char* name, bool wanted) {
    return wanted && call.has(name) ? meta(call.tensor(name).sizes(), call.tensor(name)) : undefined();
  };
  call.give({gradient_of("input", mask[0]), gradient_of("weight", mask[1]), gradient_of("bias", mask[2])});
}

void fused_rms_norm(const Arguments& call) {
  const at::Tensor& input = call.tensor("input");
  call.give({meta(input.sizes(), input), statistics(call, wide(input))});
}

void fused_rms_norm_backward(const Arguments& call) {
  const auto mask = call["output_mask"].toBoolList();
  const auto gradient_of = [&](const char* name, bool wanted) {
    return wanted ? meta(call.tensor(name).sizes(), call.tensor(name)) : undefined();
  };
  call.give({gradient_of("input", mask[0]), gradient_of("weight", mask[1])});
}

/// Ordered in memory as all operators order their result that treat every element alone.
void where_self(const Arguments& call) {
  const at::Tensor &self = call.tensor("self"), &other = call.tensor("other");
  const auto number = [&](const char* name) {
    const at::Tensor& of = call.tensor(name);
    return at::empty_strided(of.sizes(), of.strides(), at::TensorOptions(at::kMeta).dtype(at::kFloat));
  };
  const at::Tensor like = at::addcmul(number("condition"), number("self"), number("other"));
  call.give({at::empty_strided(like.sizes(), like.strides(), like.options().dtype(at::result_type(self, other)))});
}

void like_self(const Arguments& call) {
  call.give({at::empty_like(call.tensor("self"), call.tensor("self").options().device(at::kMeta))});
}

void like_gradient(const Arguments& call) {
  call.give({at::empty_like(call.tensor("grad_output"), call.tensor("grad_output").options().device(at::kMeta))});
}

void contiguous_like_self(const Arguments& call) {
  call.give({meta(call.tensor("self").sizes(), call.tensor("self"))});
}

/// Full reductions.
void scalar(const Arguments& call) {
  call.give({meta({}, call.tensor("self"))});
}

/// The scaled dot product of the CPU: its result has the order of the query, which is as wide as the value.
void attention_for_cpu(const Arguments& call) {
  const at::Tensor& query = call.tensor("query");
  const int64_t batch = query.size(0), heads = query.size(1), length = query.size(2);
  call.give({at::empty_like(query, query.options().device(at::kMeta)),
             meta({batch, length, heads}, query, wide(query)).toTensor().transpose(1, 2)});
}

void attention_backward(const Arguments& call) {
  const auto gradient_of = [&](const char* name) -> IValue {
    const at::Tensor& t = call.tensor(name);
    return meta({t.size(0), t.size(2), t.size(1), t.size(3)}, t).toTensor().transpose(1, 2);
  };
  call.give({gradient_of("query"), gradient_of("key"), gradient_of("value")});
}

/// The one of GPUs: stored in the same order, with what backward would need to drop the same again.
void attention_for_gpu(const Arguments& call) {
  const at::Tensor& query = call.tensor("query");
  const int64_t batch = query.size(0), heads = query.size(1), length = query.size(2);
  const at::Tensor result = meta({batch, length, heads, query.size(3)}, query).toTensor().transpose(1, 2);
  call.give({result, meta({batch, heads, length}, query, at::kFloat), undefined(), undefined(), length,
             call.tensor("key").size(2), meta({2}, query, at::kUInt64), meta({}, query, at::kUInt64),
             meta({0}, query)});
}

/// That of cuDNN: its result has the order of the query.
void attention_of_cudnn(const Arguments& call) {
  const at::Tensor& query = call.tensor("query");
  const int64_t batch = query.size(0), heads = query.size(1), length = query.size(2);
  call.give({like_order(query, {batch, heads, length, call.tensor("value").size(3)}),
             meta({batch, heads, length, 1}, query, at::kFloat), undefined(), undefined(), length,
             call.tensor("key").size(2), meta({}, query, at::kLong), meta({}, query, at::kLong), undefined()});
}

void attention_of_cudnn_backward(const Arguments& call) {
  const auto gradient_of = [&](const char* name) { return like_order(call.tensor(name), call.tensor(name).sizes()); };
  call.give({gradient_of("query"), gradient_of("key"), gradient_of("value")});
}

template <void (*rule)(const Arguments&)>
void on_stack(const c10::OperatorHandle& op, Stack& stack) {
  rule({op, stack});
}

}  // namespace

ShapeRule shape_rule(std::string_view full_name, c10::DeviceType target) {
  if (target == c10::kCUDA && full_name == "aten::native_layer_norm") return on_stack<native_layer_norm_of_gpu>;
  static const std::unordered_map<std::string_view, ShapeRule> rules = {
      {"aten::embedding", on_stack<embedding>},
      {"aten::embedding_dense_backward", on_stack<embedding_dense_backward>},
      {"aten::index_select", on_stack<index_select>},
      {"aten::native_layer_norm", on_stack<native_layer_norm>},
      {"aten::native_layer_norm_backward", on_stack<native_layer_norm_backward>},
      {"aten::_fused_rms_norm", on_stack<fused_rms_norm>},
      {"aten::_fused_rms_norm_backward", on_stack<fused_rms_norm_backward>},
      {"aten::where.self", on_stack<where_self>},
      {"aten::native_dropout_backward", on_stack<like_gradient>},
      {"aten::flip", on_stack<like_self>},
      {"aten::relu", on_stack<like_self>},
      {"aten::roll", on_stack<contiguous_like_self>},
      {"aten::max", on_stack<scalar>},
      {"aten::min", on_stack<scalar>},
      {"aten::prod", on_stack<scalar>},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", on_stack<attention_for_cpu>},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", on_stack<attention_backward>},
      {"piper::context_attention", on_stack<attention_for_cpu>},
      {"piper::context_attention_backward", on_stack<attention_backward>},
      {"piper::heads_attention", on_stack<attention_for_cpu>},
      {"piper::heads_attention_backward", on_stack<attention_backward>},
      {"aten::_scaled_dot_product_flash_attention", on_stack<attention_for_gpu>},
      {"aten::_scaled_dot_product_flash_attention_backward", on_stack<attention_backward>},
      {"aten::_scaled_dot_product_cudnn_attention", on_stack<attention_of_cudnn>},
      {"aten::_scaled_dot_product_cudnn_attention_backward", on_stack<attention_of_cudnn_backward>},
  };
  const auto found = rules.find(full_name);
  return found == rules.end() ? nullptr : found->second;
}

}  // namespace piper
