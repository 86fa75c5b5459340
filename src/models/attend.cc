#include "models/attend.h"

#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

namespace piper {

using at::Tensor;

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Operators of GPUs, with backwards of our own: on meta tensors libtorch would take others.

/// Nothing is dropped, so that no state of random numbers is kept.
struct FlashAttention : torch::autograd::Function<FlashAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
    const auto results = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal);
    context->save_for_backward({q, k, v, std::get<0>(results), std::get<1>(results)});
    context->saved_data["causal"] = causal;
    return std::get<0>(results);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const Tensor seed = at::empty({2}, q.options().dtype(at::kUInt64)), offset = at::empty({}, seed.options());
    auto [for_q, for_k, for_v] = at::_scaled_dot_product_flash_attention_backward(
        gradients[0], q, k, v, saved[3], saved[4], {}, {}, q.size(2), k.size(2), 0.0,
        context->saved_data["causal"].toBool(), seed, offset);
    return {for_q, for_k, for_v, {}};
  }
};

/// The same of cuDNN.
struct CudnnAttention : torch::autograd::Function<CudnnAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
    const auto results = at::_scaled_dot_product_cudnn_attention(q, k, v, {}, /*compute_log_sumexp=*/true, 0.0, causal);
    context->save_for_backward({q, k, v, std::get<0>(results), std::get<1>(results)});
    context->saved_data["causal"] = causal;
    return std::get<0>(results);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3];
    // libtorch 2.11 computes something else if the gradient lies in another order than the result
    const Tensor gradient =
        gradients[0].strides() == out.strides() ? gradients[0] : at::empty_like(out).copy_(gradients[0]);
    const Tensor seed = at::empty({}, q.options().dtype(at::kLong)), offset = at::empty({}, seed.options());
    auto [for_q, for_k, for_v] = at::_scaled_dot_product_cudnn_attention_backward(
        gradient, q, k, v, out, saved[4], seed, offset, {}, {}, {}, q.size(2), k.size(2), 0.0,
        context->saved_data["causal"].toBool());
    return {for_q, for_k, for_v, {}};
  }
};

struct FusedRmsNorm : torch::autograd::Function<FusedRmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, double epsilon) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // which would write it with other operators
    const auto [y, inverse] = at::_fused_rms_norm(x, {x.size(-1)}, weight, epsilon);
    context->save_for_backward({x, weight, inverse});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &inverse = saved[2];
    auto [for_x, for_weight] =
        at::_fused_rms_norm_backward(gradients[0], x, {x.size(-1)}, inverse, weight, {true, true});
    return {for_x, for_weight, {}};
  }
};

bool has_flash_attention(const Tensor& q) {
  const bool half = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  return half && q.size(3) % 8 == 0 && q.size(3) <= 256;
}

/// What libtorch would choose on a GPU, whose tensors it has to see for that.
at::SDPBackend choice_of_gpu(const Tensor& q, const Tensor& k, const Tensor& v, Mask mask) {
  if (!at::hasCUDA()) return has_flash_attention(q) ? at::SDPBackend::flash_attention : at::SDPBackend::math;
  const auto there = [](const Tensor& like) {
    return at::empty_strided(like.sizes(), like.strides(), like.options().device(c10::kCUDA)).requires_grad_();
  };
  return static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(there(q), there(k), there(v), {}, 0.0, mask == Mask::Causal, {}, q.size(1) != k.size(1)));
}

}  // namespace

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, Mask mask, c10::DeviceType target) {
  const bool causal = mask == Mask::Causal;
  // the operator that the CPU would choose, by name: on meta tensors torch would choose another
  if (target != c10::kCUDA) return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal));
  switch (choice_of_gpu(q, k, v, mask)) {
    case at::SDPBackend::cudnn_attention:
      return CudnnAttention::apply(q, k, v, causal);
    case at::SDPBackend::flash_attention:
      if (has_flash_attention(q)) return FlashAttention::apply(q, k, v, causal);  // libtorch would pad others
      [[fallthrough]];
    default:
      return attend_with_scores(q, k, v, mask, 0);
  }
}

Tensor attend_with_scores(const Tensor& q, const Tensor& k, const Tensor& v, Mask mask, double dropout,
                          const Tensor& places) {
  const int64_t b = q.size(0), heads = q.size(1), t = q.size(2), width = q.size(3), own = k.size(1), s = k.size(2);
  const Tensor grouped = (q / std::sqrt(static_cast<double>(width))).reshape({b, own, heads / own * t, width});
  Tensor scores = at::matmul(grouped, k.transpose(-2, -1)).view({b, heads, t, s});
  if (mask == Mask::Causal) {
    const Tensor later = at::ones({t, s}, q.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  if (places.defined()) {
    const Tensor numbers = at::arange(s, places.options());
    const Tensor earlier = numbers < (numbers - places).unsqueeze(2);  // than the first token of the document
    scores = scores.masked_fill(earlier.unsqueeze(1), -std::numeric_limits<double>::infinity());
  }
  Tensor weights = at::softmax(scores, -1);
  if (dropout > 0) weights = at::dropout(weights, dropout, true);
  return at::matmul(weights.view({b, own, heads / own * t, s}), v).view({b, heads, t, width});
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon, c10::DeviceType target) {
  if (target == c10::kCUDA) return FusedRmsNorm::apply(x, weight, epsilon);
  return at::rms_norm(x, {x.size(-1)}, weight, epsilon);
}

Tensor mean_cross_entropy(const Tensor& logits, const Tensor& targets) {
  const Tensor wide = logits.to(at::promote_types(logits.scalar_type(), at::kFloat));
  return at::cross_entropy_loss(wide.view({-1, logits.size(-1)}), targets.reshape({-1}));
}

}  // namespace piper
