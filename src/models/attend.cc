#include "models/attend.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

namespace piper {

using at::Tensor;

namespace {

/// The operator of GPUs, with a backward of our own: nothing is dropped, so that no state of random numbers is kept.
struct FlashAttention : torch::autograd::Function<FlashAttention> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        bool causal) {
    const auto results = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal);
    context->save_for_backward({q, k, v, std::get<0>(results), std::get<1>(results)});
    context->saved_data["causal"] = causal;
    return std::get<0>(results);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const Tensor seed = at::empty({2}, q.options().dtype(at::kUInt64)), offset = at::empty({}, seed.options());
    auto [for_q, for_k, for_v] = at::_scaled_dot_product_flash_attention_backward(
        gradients[0], q, k, v, saved[3], saved[4], {}, {}, q.size(2), k.size(2), 0.0,
        context->saved_data["causal"].toBool(), seed, offset);
    return {for_q, for_k, for_v, {}};
  }
};

bool has_flash_attention(const Tensor& q) {
  const bool half = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  return half && q.size(3) % 8 == 0 && q.size(3) <= 256;
}

}  // namespace

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, Mask mask, c10::DeviceType target) {
  if (target == c10::kCUDA)
    return has_flash_attention(q) ? FlashAttention::apply(q, k, v, mask == Mask::Causal)
                                  : attend_with_scores(q, k, v, mask, 0);
  // the operator that the CPU would choose, by name: on meta tensors torch would choose another
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, mask == Mask::Causal));
}

Tensor attend_with_scores(const Tensor& q, const Tensor& k, const Tensor& v, Mask mask, double dropout) {
  const int64_t b = q.size(0), heads = q.size(1), t = q.size(2), width = q.size(3), own = k.size(1), s = k.size(2);
  const Tensor grouped = (q / std::sqrt(static_cast<double>(width))).reshape({b, own, heads / own * t, width});
  Tensor scores = at::matmul(grouped, k.transpose(-2, -1)).view({b, heads, t, s});
  if (mask == Mask::Causal) {
    const Tensor later = at::ones({t, s}, q.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  Tensor weights = at::softmax(scores, -1);
  if (dropout > 0) weights = at::dropout(weights, dropout, true);
  return at::matmul(weights.view({b, own, heads / own * t, s}), v).view({b, heads, t, width});
}

Tensor mean_cross_entropy(const Tensor& logits, const Tensor& targets) {
  const Tensor wide = logits.to(at::promote_types(logits.scalar_type(), at::kFloat));
  return at::cross_entropy_loss(wide.view({-1, logits.size(-1)}), targets.reshape({-1}));
}

}  // namespace piper
