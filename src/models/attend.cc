#include "models/attend.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace piper {
namespace {

using at::Tensor;

/// Each head of keys or values once for every head of queries that it serves.
Tensor repeat_heads(const Tensor& x, int64_t heads) {
  if (x.size(1) == heads) return x;
  const int64_t b = x.size(0), own = x.size(1), t = x.size(2), width = x.size(3);
  return x.unsqueeze(2).expand({b, own, heads / own, t, width}).reshape({b, heads, t, width});
}

}  // namespace

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, Mask mask) {
  // the operator that the CPU would choose, by name: on meta tensors torch would choose another
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      q, repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1)), 0.0, mask == Mask::Causal));
}

Tensor attend_with_scores(const Tensor& q, const Tensor& k, const Tensor& v, Mask mask, double dropout) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  Tensor scores = at::matmul(q * scale, repeat_heads(k, q.size(1)).transpose(-2, -1));
  if (mask == Mask::Causal) {
    const Tensor later = at::ones({q.size(2), k.size(2)}, q.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  Tensor weights = at::softmax(scores, -1);
  if (dropout > 0) weights = at::dropout(weights, dropout, true);
  return at::matmul(weights, repeat_heads(v, q.size(1)));
}

Tensor mean_cross_entropy(const Tensor& logits, const Tensor& targets) {
  const Tensor wide = logits.to(at::promote_types(logits.scalar_type(), at::kFloat));
  return at::cross_entropy_loss(wide.view({-1, logits.size(-1)}), targets.reshape({-1}));
}

}  // namespace piper
