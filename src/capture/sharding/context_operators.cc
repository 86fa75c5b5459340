// Operators of ours for attention whose queries are some of the tokens, and whose keys and values are all of them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "capture/sharding/part_operators.h"

namespace piper {
namespace {

struct Block {
  int64_t begin, size;
  bool causal;
};
/// Queries see all keys before the first of them, and of those beside them the ones that are not later.
std::vector<Block> blocks(const at::Tensor& query, int64_t first) {
  std::vector<Block> out = {{first, query.size(2), true}};
  if (first > 0) out.push_back({0, first, false});
  return out;
}

/// A softmax over two sets of keys is the mean of both, weighted by their sums of exponentials.
std::tuple<at::Tensor, at::Tensor> causal_attention(const at::Tensor& query, const at::Tensor& key,
                                                    const at::Tensor& value, std::optional<double> scale,
                                                    int64_t first) {
  at::Tensor out, logsumexp;
  for (const Block& block : blocks(query, first)) {
    const auto [attended, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        query, key.narrow(2, block.begin, block.size), value.narrow(2, block.begin, block.size), 0.0, block.causal, {},
        scale);
    if (!out.defined()) {
      out = attended;
      logsumexp = sums;
      continue;
    }
    const at::Tensor both = at::logaddexp(logsumexp, sums);
    const auto weighted = [&](const at::Tensor& of, const at::Tensor& by) {
      return of.to(both.scalar_type()).mul_(by.sub(both).exp_().unsqueeze(-1));
    };
    out.copy_(weighted(out, logsumexp).add_(weighted(attended, sums)));
    logsumexp.copy_(both);
  }
  return {out, logsumexp};
}

/// With the result and the sums over all keys, gradients of each block add up.
std::tuple<at::Tensor, at::Tensor, at::Tensor> causal_attention_backward(const at::Tensor& grad_out,
                                                                         const at::Tensor& query, const at::Tensor& key,
                                                                         const at::Tensor& value, const at::Tensor& out,
                                                                         const at::Tensor& logsumexp,
                                                                         std::optional<double> scale, int64_t first) {
  const auto zeros_like = [](const at::Tensor& of) {
    return at::zeros({of.size(0), of.size(2), of.size(1), of.size(3)}, of.options()).transpose(1, 2);
  };
  at::Tensor for_query;
  const at::Tensor for_key = zeros_like(key), for_value = zeros_like(value);
  for (const Block& block : blocks(query, first)) {
    const auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, query, key.narrow(2, block.begin, block.size), value.narrow(2, block.begin, block.size), out,
        logsumexp, 0.0, block.causal, {}, scale);
    for_query = for_query.defined() ? for_query.add_(q) : q;
    for_key.narrow(2, block.begin, block.size).copy_(k);
    for_value.narrow(2, block.begin, block.size).copy_(v);
  }
  return {for_query, for_key, for_value};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(piper, m) {
  m.def("causal_attention(Tensor query, Tensor key, Tensor value, float? scale, int first) -> (Tensor, Tensor)");
  m.def(
      "causal_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor "
      "logsumexp, "
      "float? scale, int first) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(piper, CPU, m) {
  m.impl("causal_attention", causal_attention);
  m.impl("causal_attention_backward", causal_attention_backward);
}

void provide_context_operators() {}

}  // namespace piper
