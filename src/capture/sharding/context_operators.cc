// Piper's own operators for attention whose queries are some of the tokens, and whose keys and values are all of them,
// one device's after the other's; and for attention of all tokens, of some heads.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "capture/sharding/localize.h"
#include "capture/sharding/part_operators.h"

namespace piper {
namespace {

/// Attention over some of the keys, as the device computes it; on GPUs without a mask.
struct Attention {
  std::optional<double> scale;

  /// Some callers pass a tensor that is not there.
  static std::optional<at::Tensor> present(const std::optional<at::Tensor>& mask) {
    return mask && mask->defined() ? mask : std::nullopt;
  }

  /// The result, and the logarithms of the sums of exponentials.
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                             bool causal, const std::optional<at::Tensor>& mask = {}) const {
    if (query.is_cpu())
      return at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal, present(mask), scale);
    const auto found = at::_scaled_dot_product_flash_attention(query, key, value, 0.0, causal, false, scale);
    return {std::get<0>(found), std::get<1>(found)};
  }

  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& gradient, const at::Tensor& query,
                                                          const at::Tensor& key, const at::Tensor& value,
                                                          const at::Tensor& out, const at::Tensor& logsumexp,
                                                          bool causal,
                                                          const std::optional<at::Tensor>& mask = {}) const {
    if (query.is_cpu())
      return at::_scaled_dot_product_flash_attention_for_cpu_backward(gradient, query, key, value, out, logsumexp, 0.0,
                                                                      causal, present(mask), scale);
    const at::TensorOptions unused = query.options().dtype(at::kUInt64);  // the state of dropout
    return at::_scaled_dot_product_flash_attention_backward(gradient, query, key, value, out, logsumexp.contiguous(),
                                                            {}, {}, query.size(2), key.size(2), 0.0, causal,
                                                            at::empty({2}, unused), at::empty({}, unused), scale);
  }
};

/// Laid out as the operator of CPUs does it.
at::Tensor with_tokens_before_heads(const at::Tensor& of) {
  std::vector<int64_t> sizes = of.sizes().vec();
  std::swap(sizes[1], sizes[2]);
  return at::zeros(sizes, of.options()).transpose(1, 2);
}
at::Tensor laid_out(const at::Tensor& from, const at::Tensor& as) {
  return from.strides() == as.strides() ? from : at::empty_like(as, from.options()).copy_(from);
}

/// Along dimension 2 of what was gathered, the tokens of all devices in their own order.
at::Tensor in_order(const at::Tensor& gathered, int64_t devices) {
  const at::Tensor blocks = gathered.unflatten(2, {devices, 2, -1});
  return at::cat({blocks.select(3, 0), blocks.select(3, 1).flip(2)}, 2).flatten(2, 3);
}
/// The reverse.
at::Tensor by_device(const at::Tensor& ordered, int64_t devices) {
  const at::Tensor blocks = ordered.unflatten(2, {2 * devices, -1});
  return at::stack({blocks.narrow(2, 0, devices), blocks.narrow(2, devices, devices).flip(2)}, 3).flatten(2, 4);
}

/// Some of the queries see all of these keys.
struct Seen {
  int64_t key, keys, query, queries;  // the first, and how many
};

/// Which tokens a device has: `own` of them, from `first` on where those of all devices lie one after the other.
struct OwnTokens {
  OwnTokens(const at::Tensor& query, const at::Tensor& key, int64_t first_token, bool zigzag)
      : all(key.size(2)), own(query.size(2)), first(first_token), two_blocks(zigzag && own < all) {}

  int64_t all, own, first;
  bool two_blocks;

  int64_t devices() const { return all / own; }
  at::Tensor ordered(const at::Tensor& gathered) const { return two_blocks ? in_order(gathered, devices()) : gathered; }
  at::Tensor gathered(const at::Tensor& ordered) const { return two_blocks ? by_device(ordered, devices()) : ordered; }

  /// What is seen besides the own tokens, keys in their order. Of two blocks the second is later than all between them.
  std::vector<Seen> earlier() const {
    std::vector<Seen> out;
    const int64_t block = two_blocks ? own / 2 : own, before = first / own * block;
    if (before > 0) out.push_back({0, before, 0, own});
    if (const int64_t between = all - 2 * (before + block); two_blocks && between > 0)
      out.push_back({before + block, between, block, block});
    return out;
  }
};

/// A softmax over two sets of keys is the mean of both, weighted by their sums of exponentials.
void merge(const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& attended, const at::Tensor& sums) {
  const at::Tensor both = at::logaddexp(logsumexp, sums);
  const auto weighted = [&](const at::Tensor& of, const at::Tensor& by) {
    return of.to(both.scalar_type()).mul_(by.sub(both).exp_().unsqueeze(-1));
  };
  out.copy_(weighted(out, logsumexp).add_(weighted(attended, sums)));
  logsumexp.copy_(both);
}

std::tuple<at::Tensor, at::Tensor> context_attention(const at::Tensor& query, const at::Tensor& key,
                                                     const at::Tensor& value, const std::optional<at::Tensor>& mask,
                                                     bool is_causal, std::optional<double> scale, int64_t first,
                                                     bool zigzag) {
  const OwnTokens tokens(query, key, first, zigzag);
  const Attention attention{scale};
  const at::Tensor keys = tokens.ordered(key), values = tokens.ordered(value);
  auto [out, logsumexp] =
      is_causal ? attention.forward(query, key.narrow(2, first, tokens.own), value.narrow(2, first, tokens.own), true)
                : attention.forward(query, keys, values, false, mask);
  out = laid_out(out, query);
  logsumexp = laid_out(logsumexp, with_tokens_before_heads(logsumexp));
  if (!is_causal) return {out, logsumexp};
  for (const Seen& seen : tokens.earlier()) {
    const auto [attended, sums] =
        attention.forward(query.narrow(2, seen.query, seen.queries), keys.narrow(2, seen.key, seen.keys),
                          values.narrow(2, seen.key, seen.keys), false);
    merge(out.narrow(2, seen.query, seen.queries), logsumexp.narrow(2, seen.query, seen.queries), attended, sums);
  }
  return {out, logsumexp};
}

/// With the result and the sums over all keys, gradients of each block add up.
std::tuple<at::Tensor, at::Tensor, at::Tensor> context_attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& out, const at::Tensor& logsumexp, const std::optional<at::Tensor>& mask, bool is_causal,
    std::optional<double> scale, int64_t first, bool zigzag) {
  const OwnTokens tokens(query, key, first, zigzag);
  const Attention attention{scale};
  const at::Tensor keys = tokens.ordered(key), values = tokens.ordered(value);
  const at::Tensor for_key = with_tokens_before_heads(key), for_value = with_tokens_before_heads(value);
  if (!is_causal) {
    const auto [q, k, v] = attention.backward(grad_out, query, keys, values, out, logsumexp, false, mask);
    for_key.copy_(tokens.gathered(k));
    for_value.copy_(tokens.gathered(v));
    return {laid_out(q, with_tokens_before_heads(query)), for_key, for_value};
  }
  const auto [own_query, own_key, own_value] = attention.backward(
      grad_out, query, key.narrow(2, first, tokens.own), value.narrow(2, first, tokens.own), out, logsumexp, true);
  const at::Tensor for_query = laid_out(own_query, with_tokens_before_heads(query));
  const at::Tensor of_keys = at::zeros(key.sizes(), key.options()),
                   of_values = at::zeros(value.sizes(), value.options());
  for (const Seen& seen : tokens.earlier()) {
    const auto queries = [&](const at::Tensor& of) { return of.narrow(2, seen.query, seen.queries); };
    const auto [q, k, v] =
        attention.backward(queries(grad_out), queries(query), keys.narrow(2, seen.key, seen.keys),
                           values.narrow(2, seen.key, seen.keys), queries(out), queries(logsumexp), false);
    queries(for_query).add_(q);
    of_keys.narrow(2, seen.key, seen.keys).copy_(k);
    of_values.narrow(2, seen.key, seen.keys).copy_(v);
  }
  for_key.copy_(tokens.gathered(of_keys));
  for_value.copy_(tokens.gathered(of_values));
  for_key.narrow(2, first, tokens.own).copy_(own_key);
  for_value.narrow(2, first, tokens.own).copy_(own_value);
  return {for_query, for_key, for_value};
}

/// All tokens, as devices have sent them: two blocks of each.
struct AllTokens {
  AllTokens(const at::Tensor& query, int64_t heads) : devices(heads / query.size(1)) {}

  int64_t devices;

  at::Tensor ordered(const at::Tensor& of) const { return devices > 1 ? in_order(of, devices) : of; }
  /// Laid out as this one.
  at::Tensor sent(const at::Tensor& of, const at::Tensor& as) const {
    return at::empty_like(as, of.options()).copy_(devices > 1 ? by_device(of, devices) : of);
  }
};

std::tuple<at::Tensor, at::Tensor> heads_attention(const at::Tensor& query, const at::Tensor& key,
                                                   const at::Tensor& value, const std::optional<at::Tensor>& mask,
                                                   bool is_causal, std::optional<double> scale, int64_t heads) {
  const AllTokens tokens(query, heads);
  const auto [out, logsumexp] =
      Attention{scale}.forward(tokens.ordered(query), tokens.ordered(key), tokens.ordered(value), is_causal, mask);
  return {tokens.sent(out, query), tokens.sent(logsumexp, with_tokens_before_heads(logsumexp))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> heads_attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& out, const at::Tensor& logsumexp, const std::optional<at::Tensor>& mask, bool is_causal,
    std::optional<double> scale, int64_t heads) {
  const AllTokens tokens(query, heads);
  const auto [q, k, v] =
      Attention{scale}.backward(tokens.ordered(grad_out), tokens.ordered(query), tokens.ordered(key),
                                tokens.ordered(value), tokens.ordered(out), tokens.ordered(logsumexp), is_causal, mask);
  const auto sent = [&](const at::Tensor& of) { return tokens.sent(of, with_tokens_before_heads(of)); };
  return {sent(q), sent(k), sent(v)};
}

at::Tensor repeat_heads(const at::Tensor& heads, int64_t times) {
  std::vector<int64_t> sizes = heads.sizes().vec();
  sizes.insert(sizes.begin() + 2, times);
  return heads.unsqueeze(2).expand(sizes).clone(at::MemoryFormat::Contiguous).flatten(1, 2);
}
/// Fewer heads, laid out as those are.
at::Tensor empty_sums(const at::Tensor& heads, int64_t times) {
  std::vector<int64_t> sizes = heads.sizes().vec();
  sizes[1] /= times;
  return at::empty_strided(sizes, strides_like(sizes, heads.strides().vec()), heads.options());
}
at::Tensor add_repeated(const at::Tensor& heads, int64_t times) {
  at::Tensor sums = empty_sums(heads, times);
  return at::sum_out(sums, heads.unflatten(1, {-1, times}), 2);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(piper, m) {
  m.def(
      "heads_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float? scale, int "
      "heads) -> (Tensor, Tensor)");
  m.def(
      "heads_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor "
      "logsumexp, Tensor? attn_mask, bool is_causal, float? scale, int heads) -> (Tensor, Tensor, Tensor)");
  m.def("repeat_heads(Tensor heads, int times) -> Tensor");
  m.def("add_repeated(Tensor heads, int times) -> Tensor");
  m.def(
      "context_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float? scale, int "
      "first, bool zigzag) -> (Tensor, Tensor)");
  m.def(
      "context_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor "
      "logsumexp, Tensor? attn_mask, bool is_causal, float? scale, int first, bool zigzag) -> (Tensor, Tensor, "
      "Tensor)");
}
TORCH_LIBRARY_IMPL(piper, CompositeExplicitAutograd, m) {
  m.impl("repeat_heads", repeat_heads);
  m.impl("add_repeated", add_repeated);
}
TORCH_LIBRARY_IMPL(piper, Meta, m) {
  m.impl("repeat_heads", [](const at::Tensor& heads, int64_t times) {
    std::vector<int64_t> sizes = heads.sizes().vec();
    sizes[1] *= times;
    return at::empty(sizes, heads.options());
  });
  m.impl("add_repeated", empty_sums);
}
TORCH_LIBRARY_IMPL(piper, CPU, m) {
  m.impl("heads_attention", heads_attention);
  m.impl("heads_attention_backward", heads_attention_backward);
  m.impl("context_attention", context_attention);
  m.impl("context_attention_backward", context_attention_backward);
}
TORCH_LIBRARY_IMPL(piper, CUDA, m) {
  m.impl("heads_attention", heads_attention);
  m.impl("heads_attention_backward", heads_attention_backward);
  m.impl("context_attention", context_attention);
  m.impl("context_attention_backward", context_attention_backward);
}

void provide_context_operators() {}

}  // namespace piper
