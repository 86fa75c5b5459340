#include "models/routing.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace piper {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Scores of experts outside of a token's best groups become -inf. A group is as good as its two best experts together
/// (DeepSeek-V3), with a softmax as its best (DeepSeek-V2).
Tensor within_best_groups(const Tensor& scores, const RouterForm& form) {
  const Tensor grouped = scores.view({scores.size(0), form.groups, -1});
  const int64_t best = form.scores == RouterScores::Sigmoid ? std::min<int64_t>(2, grouped.size(2)) : 1;
  const Tensor of_groups = std::get<0>(grouped.topk(best, -1)).sum(-1);
  const Tensor chosen = std::get<1>(of_groups.topk(form.top_groups, -1));
  const Tensor outside = at::ones_like(of_groups).scatter(1, chosen, 0).unsqueeze(-1).expand_as(grouped);
  return scores.masked_fill(outside.reshape(scores.sizes()) > 0, -std::numeric_limits<double>::infinity());
}

/// Weights as they are; in backward the gradient of the bias.
struct CountedForBias : torch::autograd::Function<CountedForBias> {
  static Tensor forward(AutogradContext* context, const Tensor& weights, const Tensor& bias, const Tensor& experts) {
    context->save_for_backward({bias, experts});
    return at::alias(weights);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &bias = saved[0], chosen = saved[1].reshape({-1});
    const Tensor counts = at::zeros(bias.sizes(), chosen.options()).scatter_add(0, chosen, at::ones_like(chosen));
    const Tensor above_mean = counts * bias.size(0) - chosen.size(0);
    return {gradients[0], above_mean.to(bias.scalar_type()) * count_unit, {}};
  }
};

}  // namespace

int64_t expert_capacity(double factor, int64_t tokens, int64_t top_k, int64_t experts) {
  const int64_t slots = std::llround(factor * 10'000) * tokens * top_k, share = 10'000 * experts;
  return (slots + share - 1) / share;
}

RouterForm router_form(const ModelConfig& c) {
  RouterForm out{c.top_k, c.scoring_func, c.norm_topk_prob, c.routed_scaling_factor};
  if (c.n_group > 0) out.groups = c.n_group, out.top_groups = c.topk_group;
  return out;
}

Choices choose(const Tensor& logits, const RouterForm& form, const Tensor& bias) {
  Choices out;
  out.logits = logits.to(at::promote_types(logits.scalar_type(), at::kFloat));
  out.scores = form.scores == RouterScores::Sigmoid ? at::sigmoid(out.logits) : at::softmax(out.logits, -1);
  if (!bias.defined() && form.groups == 1) {
    std::tie(out.weights, out.experts) = out.scores.topk(form.top_k, -1);
  } else {
    Tensor candidates = out.scores.detach();
    if (bias.defined()) candidates = candidates + bias.detach().to(candidates.scalar_type());
    if (form.groups > 1) candidates = within_best_groups(candidates, form);
    out.experts = std::get<1>(candidates.topk(form.top_k, -1));
    out.weights = out.scores.gather(1, out.experts);
  }
  if (form.normalized) {
    const Tensor sums = out.weights.sum(-1, true);
    out.weights = out.weights / (form.scores == RouterScores::Sigmoid ? sums + 1e-20 : sums);
  }
  if (form.scaling != 1) out.weights = out.weights * form.scaling;
  if (bias.defined() && bias.requires_grad()) out.weights = CountedForBias::apply(out.weights, bias, out.experts);
  return out;
}

Tensor probabilities(const Choices& choices, const RouterForm& form) {
  return form.scores == RouterScores::Softmax ? choices.scores : choices.scores / choices.scores.sum(-1, true);
}

SlotRouting route(Choices choices_of_tokens, double capacity_factor) {
  SlotRouting r;
  r.choices = std::move(choices_of_tokens);
  r.experts = r.choices.scores.size(1), r.top_k = r.choices.experts.size(1);
  r.capacity = expert_capacity(capacity_factor, r.choices.scores.size(0), r.top_k, r.experts);
  r.weights = r.choices.weights.t().reshape({-1, 1});
  const Tensor choices = r.choices.experts.t().reshape({-1, 1});
  r.chosen = choices == at::arange(r.experts, choices.options());
  const Tensor place = r.chosen.cumsum(0, at::kInt).gather(1, choices) - 1;
  r.slots = at::where(place < r.capacity, choices * r.capacity + place, r.experts * r.capacity).squeeze(1);
  return r;
}

Tensor dispatch(const Tensor& x, const SlotRouting& r) {
  const int64_t tokens = x.size(0), dim = x.size(1), rows = r.experts * r.capacity;
  const Tensor copies = x.unsqueeze(0).expand({r.top_k, tokens, dim}).reshape({-1, dim});
  const Tensor all = at::zeros({rows + 1, dim}, x.options()).index_copy(0, r.slots, copies);
  return all.narrow(0, 0, rows).view({r.experts, r.capacity, dim});
}

Tensor combine(const Tensor& y, const SlotRouting& r) {
  const int64_t dim = y.size(2), rows = r.experts * r.capacity;
  const Tensor all = at::cat({y.reshape({rows, dim}), at::zeros({1, dim}, y.options())});
  const Tensor back = all.index_select(0, r.slots) * r.weights.to(y.scalar_type());
  return back.view({r.top_k, -1, dim}).sum(0);
}

Tensor shares(const SlotRouting& r) {
  return r.chosen.to(r.choices.scores.scalar_type()).mean(0);
}

Tensor imbalance(const Tensor& probabilities, const Tensor& shares, int64_t samples) {
  return (means_by_sample(probabilities, samples) * shares).sum(-1) * static_cast<double>(probabilities.size(1));
}

Tensor choices_by_sample(const Choices& choices, int64_t samples) {
  const int64_t tokens = choices.experts.size(0) / samples;
  const Tensor chosen = choices.experts.view({samples, -1});
  const Tensor none = at::zeros({samples, choices.scores.size(1)}, choices.scores.options());
  return none.scatter_add(1, chosen, at::ones_like(chosen, none.options())) / static_cast<double>(tokens);
}

Tensor means_by_sample(const Tensor& probabilities, int64_t samples) {
  return probabilities.view({samples, -1, probabilities.size(1)}).mean(1);
}

Tensor square_of_logsumexp(const Choices& choices, int64_t samples) {
  const Tensor greatest = choices.logits.detach().amax(-1, true);
  const Tensor logsumexp = (choices.logits - greatest).exp().sum(-1).log() + greatest.squeeze(-1);
  return logsumexp.square().view({samples, -1}).mean(1);
}

}  // namespace piper
