#include "models/attend.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace piper {

using at::Tensor;

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, Mask mask, c10::DeviceType target) {
  if (target != c10::kCPU) return attend_with_scores(q, k, v, mask, 0);
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
