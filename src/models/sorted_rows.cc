#include "models/sorted_rows.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace piper {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor sum_of_choices(const Tensor& rows, int64_t top_k) {
  return rows.view({-1, top_k, rows.size(1)}).sum(1);
}

/// A token to the rows of its choices; their gradients come back to it.
struct ToRows : torch::autograd::Function<ToRows> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& tokens, const Tensor& places) {
    context->save_for_backward({places});
    context->saved_data["top_k"] = tokens.size(0) / x.size(0);
    return x.index_select(0, tokens);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor places = context->get_saved_variables()[0];
    return {sum_of_choices(gradients[0].index_select(0, places), context->saved_data["top_k"].toInt()), {}, {}};
  }
};

/// Rows to the places of their choices.
struct ToChoices : torch::autograd::Function<ToChoices> {
  static Tensor forward(AutogradContext* context, const Tensor& y, const Tensor& order, const Tensor& places) {
    context->save_for_backward({order});
    return y.index_select(0, places);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0].index_select(0, context->get_saved_variables()[0]), {}, {}};
  }
};

}  // namespace

SortedRows sort_rows(Choices choices) {
  SortedRows r;
  r.choices = std::move(choices);
  r.top_k = r.choices.experts.size(1);
  const Tensor experts = r.choices.experts.reshape({-1});
  r.order = std::get<1>(experts.sort(/*stable=*/true, 0, /*descending=*/false));
  r.places = at::zeros_like(r.order).scatter(0, r.order, at::arange(r.order.size(0), r.order.options()));
  r.counts = at::zeros({r.choices.scores.size(1)}, experts.options()).scatter_add(0, experts, at::ones_like(experts));
  r.ends = r.counts.cumsum(0, at::kInt);
  return r;
}

Tensor dispatch(const Tensor& x, const SortedRows& r) {
  const int64_t count = x.size(0);
  const Tensor of_choices = at::arange(count, r.order.options()).unsqueeze(1).expand({count, r.top_k}).reshape({-1});
  return ToRows::apply(x, of_choices.index_select(0, r.order), r.places);
}

Tensor combine(const Tensor& y, const SortedRows& r) {
  const Tensor back = ToChoices::apply(y, r.order, r.places);
  return sum_of_choices(back * r.choices.weights.reshape({-1, 1}).to(y.scalar_type()), r.top_k);
}

Tensor shares(const SortedRows& r) {
  return r.counts.to(r.choices.scores.scalar_type()) / static_cast<double>(r.order.size(0));
}

}  // namespace piper
