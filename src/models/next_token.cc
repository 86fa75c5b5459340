#include "models/next_token.h"

#include <ATen/ATen.h>

namespace piper {

using at::Tensor;

std::vector<InputSpec> next_token_inputs() {
  return {{"sample", DType::Int64, {}}, {"last", DType::Int64, {}}};
}

/// By a sum, which knows tokens that several devices have a part of each.
Tensor at_place(const Tensor& x, const Tensor& last) {
  const Tensor places = at::arange(x.size(1), last.options());
  const Tensor here = (places == last.unsqueeze(1)).to(x.scalar_type());
  return (x * here.unsqueeze(2)).sum(1);
}

/// By two maxima, which know a vocabulary that several devices have a part of each. Adding Gumbel's noise and taking
/// the greatest is the same as drawing.
Tensor choose_token(const Tensor& logits, double temperature) {
  Tensor scores = logits.to(at::promote_types(logits.scalar_type(), at::kFloat));
  if (temperature > 0) scores = scores * (1 / temperature) - at::empty_like(scores).exponential_().log();
  const int64_t vocabulary = scores.size(1);
  const Tensor from_the_end = vocabulary - at::arange(vocabulary, scores.options());
  const Tensor best = scores >= scores.amax({1}, /*keepdim=*/true);
  return vocabulary - (best.to(scores.scalar_type()) * from_the_end).amax({1});
}

}  // namespace piper
