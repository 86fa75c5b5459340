#include "capture/chunk/count_work.h"

#include <string_view>
#include <unordered_map>

namespace piper {
namespace {

int64_t size_from_end(const ChunkIr& body, const Argument& argument, size_t from_end) {
  const auto& sizes = body[std::get<TensorId>(argument)].layout.sizes;
  return from_end < sizes.size() ? sizes[sizes.size() - 1 - from_end] : 1;
}
int64_t count(const ChunkIr& body, const Argument& argument) {
  return element_count(body[std::get<TensorId>(argument)].layout);
}

/// A product of [..., m, k] (argument `left`) and [..., k, n].
int64_t product(const ChunkIr& body, const Call& call, size_t left) {
  return 2 * count(body, call.arguments[left]) * size_from_end(body, call.arguments[left + 1], 0);
}
/// query [batch, heads, length, width] with keys of some length: two products forward, four backward.
int64_t attention(const ChunkIr& body, const Call& call, size_t query, int64_t products) {
  return 2 * products * count(body, call.arguments[query]) * size_from_end(body, call.arguments[query + 1], 1);
}

}  // namespace

int64_t count_flops(const OperatorGraph& graph, const ChunkIr& body) {
  using Rule = int64_t (*)(const ChunkIr&, const Call&);
  static const std::unordered_map<std::string_view, Rule> rules = {
      {"aten::mm", [](const ChunkIr& b, const Call& c) { return product(b, c, 0); }},
      {"aten::bmm", [](const ChunkIr& b, const Call& c) { return product(b, c, 0); }},
      {"aten::addmm", [](const ChunkIr& b, const Call& c) { return product(b, c, 1); }},
      {"aten::baddbmm", [](const ChunkIr& b, const Call& c) { return product(b, c, 1); }},
      {"aten::_scaled_dot_product_flash_attention_for_cpu",
       [](const ChunkIr& b, const Call& c) { return attention(b, c, 0, 2); }},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       [](const ChunkIr& b, const Call& c) { return attention(b, c, 1, 4); }},
      {"aten::_scaled_dot_product_flash_attention",
       [](const ChunkIr& b, const Call& c) { return attention(b, c, 0, 2); }},
      {"aten::_scaled_dot_product_flash_attention_backward",
       [](const ChunkIr& b, const Call& c) { return attention(b, c, 1, 4); }},
      {"aten::_scaled_dot_product_cudnn_attention",
       [](const ChunkIr& b, const Call& c) { return attention(b, c, 0, 2); }},
      {"aten::_scaled_dot_product_cudnn_attention_backward",
       [](const ChunkIr& b, const Call& c) { return attention(b, c, 1, 4); }},
  };
  int64_t flops = 0;
  for (const Call& call : body.calls)
    if (const auto rule = rules.find(graph[call.op].name); rule != rules.end()) flops += rule->second(body, call);
  return flops;
}

int64_t count_moved_bytes(const ChunkIr& body) {
  int64_t bytes = 0;
  for (const Call& call : body.calls) {
    bool fresh = !call.writes.empty();
    each_tensor(call.results, [&](TensorId id) {
      const GraphTensor& base = body[body.storages[body[id].storage.index()].base];
      fresh |= base.producer.valid() && &body.calls[base.producer.index()] == &call;
    });
    if (!fresh) continue;
    const auto add = [&](TensorId id) { bytes += element_count(body[id].layout) * body[id].layout.element_bytes; };
    each_tensor(call.arguments, add);
    each_tensor(call.results, add);
  }
  return bytes;
}

}  // namespace piper
