#include "models/routing.h"

#include <ATen/ATen.h>

#include <cmath>

namespace piper {

int64_t expert_capacity(double factor, int64_t tokens, int64_t top_k, int64_t experts) {
  const int64_t slots = std::llround(factor * 10'000) * tokens * top_k, share = 10'000 * experts;
  return (slots + share - 1) / share;
}

Choices choose(const at::Tensor& logits, int64_t top_k) {
  Choices out;
  out.probabilities = at::softmax(logits.to(at::promote_types(logits.scalar_type(), at::kFloat)), -1);
  const auto [best, experts] = out.probabilities.topk(top_k, -1);
  out.experts = experts;
  out.weights = best / best.sum(-1, true);
  return out;
}

SlotRouting route(const at::Tensor& logits, int64_t top_k, double capacity_factor) {
  SlotRouting r;
  r.experts = logits.size(1), r.top_k = top_k;
  r.capacity = expert_capacity(capacity_factor, logits.size(0), top_k, r.experts);
  r.choices = choose(logits, top_k);
  r.weights = r.choices.weights.t().reshape({-1, 1});
  const at::Tensor choices = r.choices.experts.t().reshape({-1, 1});
  r.chosen = choices == at::arange(r.experts, choices.options());
  const at::Tensor place = r.chosen.cumsum(0, at::kInt).gather(1, choices) - 1;
  r.slots = at::where(place < r.capacity, choices * r.capacity + place, r.experts * r.capacity).squeeze(1);
  return r;
}

at::Tensor dispatch(const at::Tensor& x, const SlotRouting& r) {
  const int64_t tokens = x.size(0), dim = x.size(1), rows = r.experts * r.capacity;
  const at::Tensor copies = x.unsqueeze(0).expand({r.top_k, tokens, dim}).reshape({-1, dim});
  const at::Tensor all = at::zeros({rows + 1, dim}, x.options()).index_copy(0, r.slots, copies);
  return all.narrow(0, 0, rows).view({r.experts, r.capacity, dim});
}

at::Tensor combine(const at::Tensor& y, const SlotRouting& r) {
  const int64_t dim = y.size(2), rows = r.experts * r.capacity;
  const at::Tensor all = at::cat({y.reshape({rows, dim}), at::zeros({1, dim}, y.options())});
  const at::Tensor back = all.index_select(0, r.slots) * r.weights.to(y.scalar_type());
  return back.view({r.top_k, -1, dim}).sum(0);
}

at::Tensor shares(const SlotRouting& r) {
  return r.chosen.to(r.choices.probabilities.scalar_type()).mean(0);
}

at::Tensor imbalance(const at::Tensor& probabilities, const at::Tensor& shares, int64_t samples) {
  const int64_t experts = probabilities.size(1);
  const at::Tensor means = probabilities.view({samples, -1, experts}).mean(1);
  return (means * shares).sum(-1) * static_cast<double>(experts);
}

}  // namespace piper
