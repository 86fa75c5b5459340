#include "capture/chunk/count_work.h"

#include <string_view>
#include <unordered_map>

namespace piper {
namespace {

using Products = std::vector<MatrixProduct>;

int64_t size_from_end(const ChunkIr& body, const Argument& argument, size_t from_end) {
  const auto& sizes = body[std::get<TensorId>(argument)].layout.sizes;
  return from_end < sizes.size() ? sizes[sizes.size() - 1 - from_end] : 1;
}
/// Matrices of so many elements in a tensor.
int64_t count(const ChunkIr& body, const Argument& argument, int64_t elements) {
  return elements > 0 ? element_count(body[std::get<TensorId>(argument)].layout) / elements : 0;
}

/// A product of [..., m, k] (argument `left`) and [..., k, n].
Products product(const ChunkIr& body, const Call& call, size_t left) {
  const int64_t m = size_from_end(body, call.arguments[left], 1), k = size_from_end(body, call.arguments[left], 0);
  const int64_t n = size_from_end(body, call.arguments[left + 1], 0);
  return {{count(body, call.arguments[left], m * k), m, n, k}};
}
/// query [batch, heads, length, width] with keys of some length: each product once forward, twice backward.
Products attention(const ChunkIr& body, const Call& call, size_t query, int times) {
  const int64_t length = size_from_end(body, call.arguments[query], 1),
                width = size_from_end(body, call.arguments[query], 0);
  const int64_t keys = size_from_end(body, call.arguments[query + 1], 1);
  const int64_t heads = count(body, call.arguments[query], length * width);
  Products out;
  for (int i = 0; i < times; ++i) {
    out.push_back({heads, length, keys, width});
    out.push_back({heads, length, width, keys});
  }
  return out;
}

/// Logits of tokens [tokens, width] by a table [vocabulary, width], and gradients of both as far as they are wanted.
Products logits(const ChunkIr& body, const Call& call) {
  const int64_t words = size_from_end(body, call.arguments[0], 1), width = size_from_end(body, call.arguments[0], 0),
                tokens = size_from_end(body, call.arguments[1], 1);
  Products out = {{1, tokens, words, width}};
  const auto* wanted = std::get_if<Bools>(&call.arguments.back());
  if (wanted && (*wanted)[0]) out.push_back({1, tokens, width, words});
  if (wanted && (*wanted)[1]) out.push_back({1, words, width, tokens});
  return out;
}

/// Rows of all groups, each row once: forward times a matrix, or for the gradient of the matrices.
Products grouped(const ChunkIr& body, const Call& call) {
  const int64_t a = size_from_end(body, call.arguments[0], 1), b = size_from_end(body, call.arguments[0], 0);
  return {{1, a, size_from_end(body, call.arguments[1], 0), b}};
}

Products products_of(const OperatorGraph& graph, const ChunkIr& body, const Call& call) {
  using Rule = Products (*)(const ChunkIr&, const Call&);
  static const std::unordered_map<std::string_view, Rule> rules = {
      {"aten::mm", [](const ChunkIr& b, const Call& c) { return product(b, c, 0); }},
      {"aten::bmm", [](const ChunkIr& b, const Call& c) { return product(b, c, 0); }},
      {"aten::addmm", [](const ChunkIr& b, const Call& c) { return product(b, c, 1); }},
      {"aten::baddbmm", [](const ChunkIr& b, const Call& c) { return product(b, c, 1); }},
      {"aten::_scaled_dot_product_flash_attention_for_cpu",
       [](const ChunkIr& b, const Call& c) { return attention(b, c, 0, 1); }},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       [](const ChunkIr& b, const Call& c) { return attention(b, c, 1, 2); }},
      {"aten::_scaled_dot_product_flash_attention",
       [](const ChunkIr& b, const Call& c) { return attention(b, c, 0, 1); }},
      {"aten::_scaled_dot_product_flash_attention_backward",
       [](const ChunkIr& b, const Call& c) { return attention(b, c, 1, 2); }},
      {"aten::_scaled_dot_product_cudnn_attention",
       [](const ChunkIr& b, const Call& c) { return attention(b, c, 0, 1); }},
      {"aten::_scaled_dot_product_cudnn_attention_backward",
       [](const ChunkIr& b, const Call& c) { return attention(b, c, 1, 2); }},
      {"piper::grouped_mm", grouped},
      {"piper::context_attention", [](const ChunkIr& b, const Call& c) { return attention(b, c, 0, 1); }},
      {"piper::context_attention_backward", [](const ChunkIr& b, const Call& c) { return attention(b, c, 1, 2); }},
      {"piper::heads_attention", [](const ChunkIr& b, const Call& c) { return attention(b, c, 0, 1); }},
      {"piper::heads_attention_backward", [](const ChunkIr& b, const Call& c) { return attention(b, c, 1, 2); }},
      {"piper::logits_in_blocks", logits},
      {"piper::logits_in_blocks_max", logits},
      {"piper::logits_in_blocks_sum", logits},
      {"piper::logits_in_blocks_backward", logits},
  };
  const auto rule = rules.find(graph[call.op].name);
  return rule == rules.end() ? Products{} : rule->second(body, call);
}

}  // namespace

int64_t CountedWork::flops() const {
  int64_t out = 0;
  for (const MatrixProduct& p : products) out += 2 * p.count * p.rows * p.columns * p.depth;
  return out;
}

CountedWork count_work(const OperatorGraph& graph, const ChunkIr& body, const std::vector<char>& linear) {
  CountedWork out;
  for (size_t i = 0; i < body.calls.size(); ++i) {
    const Call& call = body.calls[i];
    Products products = products_of(graph, body, call);
    if (!linear.empty() && linear[i])
      for (MatrixProduct& product : products) product.kind = ProductKind::Linear;
    out.products.insert(out.products.end(), products.begin(), products.end());
    if (is_view(body, call)) continue;
    int64_t bytes = 0;
    const auto add = [&](TensorId id) { bytes += element_count(body[id].layout) * body[id].layout.element_bytes; };
    each_tensor(call.arguments, add);
    each_tensor(call.results, add);
    out.moved += bytes;
    if (products.empty()) out.streamed += bytes;
    ++out.kernels;
  }
  return out;
}

}  // namespace piper
