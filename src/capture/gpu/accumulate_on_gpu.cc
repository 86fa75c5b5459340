#include "capture/gpu/accumulate_on_gpu.h"

#include <c10/core/ScalarType.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace piper {
namespace {

/// What a kernel of a few microseconds adds.
constexpr int64_t small_elements = 1 << 16;

bool is_gradient(const ChunkIr& body, TensorId tensor) {
  return std::any_of(body.gradients.begin(), body.gradients.end(),
                     [&](const ExternalUse& use) { return use.inside == tensor; });
}
void drop_calls(ChunkIr& body, const std::vector<char>& dropped) {
  std::vector<Call> kept;
  std::vector<CallId> now(body.calls.size());
  for (size_t i = 0; i < body.calls.size(); ++i) {
    if (dropped[i]) continue;
    now[i] = CallId(kept.size());
    kept.push_back(std::move(body.calls[i]));
  }
  body.calls = std::move(kept);
  for (GraphTensor& tensor : body.tensors)
    if (tensor.producer.valid()) tensor.producer = now[tensor.producer.index()];
}

c10::ScalarType type_of(const TensorLayout& layout) {
  return static_cast<c10::ScalarType>(layout.element);
}
bool is_narrow(const TensorLayout& layout) {
  return type_of(layout) == c10::ScalarType::BFloat16 || type_of(layout) == c10::ScalarType::Half;
}
/// What is computed with `narrow` numbers can be added to `sum` before it is rounded.
bool is_wider(const TensorLayout& sum, const TensorLayout& narrow) {
  return type_of(sum) == c10::ScalarType::Float && is_narrow(narrow);
}
/// The call only shows the storage in another way, whoever looks.
bool shows_only(const ChunkIr& body, const Call& call, StorageId storage) {
  bool only = call.writes.empty();
  for (const auto* list : {&call.arguments, &call.results})
    each_tensor(*list, [&](TensorId id) { only &= body[id].storage == storage; });
  return only;
}

/// A result that is only added to a gradient, seen through views.
struct OnlyAdded {
  TensorId result, into, value;
  std::vector<size_t> users;  // calls: the views and the sum
};

class Fusion {
 public:
  Fusion(ChunkIr& body, const OperatorGraph& graph)
      : body_(body), graph_(graph), dropped_(body.calls.size(), 0), users_(body.storages.size()) {
    for (size_t i = 0; i < body.calls.size(); ++i)
      for (const auto* list : {&body.calls[i].arguments, &body.calls[i].results})
        each_tensor(*list, [&](TensorId id) {
          std::vector<size_t>& users = users_[body[id].storage.index()];
          if (users.empty() || users.back() != i) users.push_back(i);
        });
  }

  void run() {
    const OperatorId product = find_operator(graph_, "aten::addmm.dtype_out"),
                     sum = find_operator(graph_, "piper::add_sum_of_rows"),
                     logits = find_operator(graph_, "piper::logits_in_blocks_backward_add");
    for (size_t i = 0; i < body_.calls.size(); ++i) {
      if (product.valid() && is(i, "aten::mm")) fuse_product(i, product);
      if (sum.valid() && is(i, "aten::sum.dim_IntList")) fuse_sum(i, sum);
      if (logits.valid() && is(i, "piper::logits_in_blocks_backward")) fuse_logits(i, logits);
    }
    drop_calls(body_, dropped_);
  }

 private:
  bool is(size_t call, std::string_view name) const { return graph_[body_.calls[call].op].name == name; }

  std::optional<OnlyAdded> only_added(size_t producer, size_t result = 0) const {
    OnlyAdded out{std::get<TensorId>(body_.calls[producer].results[result]), {}, {}, {}};
    if (!out.result.valid()) return std::nullopt;
    const StorageId storage = body_[out.result].storage;
    if (std::any_of(body_.writes.begin(), body_.writes.end(),
                    [&](const ContentUse& use) { return body_[use.inside].storage == storage; }))
      return std::nullopt;
    for (const size_t user : users_[storage.index()]) {
      if (user == producer) continue;
      out.users.push_back(user);
      if (shows_only(body_, body_.calls[user], storage)) continue;
      if (out.into.valid() || !is(user, "aten::add_.Tensor")) return std::nullopt;
      out.into = std::get<TensorId>(body_.calls[user].arguments[0]);
      out.value = std::get<TensorId>(body_.calls[user].arguments[1]);
    }
    if (!out.into.valid() || !is_gradient(body_, out.into) || body_[out.value].storage != storage) return std::nullopt;
    return out;
  }
  /// The sum sees the product as it was made.
  void fuse_product(size_t index, OperatorId fused) {
    const auto found = only_added(index);
    if (!found) return;
    const TensorLayout &sum = body_[found->into].layout, &made = body_[found->result].layout;
    if (!(body_[found->value].layout == made) || sum.sizes != made.sizes || !is_wider(sum, made)) return;
    const Call& call = body_.calls[index];
    replace(
        index, *found, fused,
        {found->into, call.arguments[0], call.arguments[1], int64_t{sum.element}, int64_t{1}, int64_t{1}, found->into});
  }
  /// The gradient of a table that makes logits.
  void fuse_logits(size_t index, OperatorId fused) {
    const auto found = only_added(index, 1);
    if (!found) return;
    const TensorLayout &sum = body_[found->into].layout, &made = body_[found->result].layout;
    if (!(body_[found->value].layout == made) || sum.sizes != made.sizes || !is_wider(sum, made)) return;
    std::vector<Argument> arguments = body_.calls[index].arguments;
    const Argument of_hidden = body_.calls[index].results[0];
    arguments.insert(arguments.begin(), found->into);
    replace(index, *found, fused, std::move(arguments));
    body_.calls[index].results = {of_hidden, found->into};
  }
  /// Over the first dimension of something whose rows lie one after the other.
  void fuse_sum(size_t index, OperatorId fused) {
    const auto found = only_added(index);
    if (!found) return;
    const Call& call = body_.calls[index];
    const TensorId of = std::get<TensorId>(call.arguments[0]);
    const auto* over = std::get_if<Ints>(&call.arguments[1]);
    const TensorLayout &sum = body_[found->into].layout, &value = body_[found->value].layout, &rows = body_[of].layout;
    if (!over || *over != Ints{0} || !std::holds_alternative<None>(call.arguments[3]) || !is_contiguous(rows) ||
        !is_contiguous(value) || !is_contiguous(sum) || sum.sizes != value.sizes ||
        (sum.element != rows.element && !is_wider(sum, rows)))
      return;
    replace(index, *found, fused, {found->into, of});
  }
  void replace(size_t index, const OnlyAdded& found, OperatorId with, std::vector<Argument> arguments) {
    for (const size_t user : found.users) dropped_[user] = 1;
    Call& call = body_.calls[index];
    call.op = with;
    call.arguments = std::move(arguments);
    call.results = {found.into};
    call.writes = {body_[found.into].storage};
  }

  ChunkIr& body_;
  const OperatorGraph& graph_;
  std::vector<char> dropped_;               // by call
  std::vector<std::vector<size_t>> users_;  // by storage: calls that name it
};

/// Sums that autograd makes along the way.
class SumFusion {
 public:
  SumFusion(ChunkIr& body, const OperatorGraph& graph)
      : body_(body), graph_(graph), fused_(find_operator(graph, "aten::addmm_")), dropped_(body.calls.size(), 0) {}

  void run() {
    for (size_t i = 0; fused_.valid() && i < body_.calls.size(); ++i)
      if (const auto sum = find(i)) fuse(*sum);
    drop_calls(body_, dropped_);
  }

 private:
  /// result = first + product
  struct Sum {
    size_t call, product;  // calls
    TensorId first, result;
    StorageId into, from, made;  // of the first summand, the product, the result
    TensorId whole;              // all of `into`
  };

  std::optional<Sum> find(size_t index) const {
    const Call& call = body_.calls[index];
    if (graph_[call.op].name != "aten::add.Tensor" || call.arguments[2] != Argument(int64_t{1})) return std::nullopt;
    const auto *x = std::get_if<TensorId>(&call.arguments[0]), *y = std::get_if<TensorId>(&call.arguments[1]);
    if (!x || !y) return std::nullopt;
    const TensorId result = std::get<TensorId>(call.results[0]);
    const StorageId into = body_[*x].storage, from = body_[*y].storage;
    const TensorId whole = base(into), product = base(from);
    const CallId computed = body_[product].producer;
    if (into == from || body_[whole].kind != TensorKind::Result || !computed.valid() ||
        graph_[body_.calls[computed.index()].op].name != "aten::mm")
      return std::nullopt;
    const Sum sum{index, computed.index(), *x, result, into, from, body_[result].storage, whole};
    const TensorLayout& made = body_[product].layout;
    const bool same_look = body_[whole].layout == made && body_[*x].layout == body_[result].layout &&
                           is_contiguous(made) && is_contiguous(body_[*x].layout) && is_contiguous(body_[*y].layout);
    return is_narrow(made) && same_look && nobody_else_looks(sum) ? std::optional(sum) : std::nullopt;
  }
  /// The product is only added; the first summand is there before it, and nobody reads it afterwards.
  bool nobody_else_looks(const Sum& sum) const {
    if (is_handed_over(sum.into) || is_handed_over(sum.from) || is_handed_over(sum.made)) return false;
    bool made_before = false;
    for (size_t i = 0; i < body_.calls.size(); ++i) {
      if (i == sum.call) continue;
      if (names(i, sum.from) && i != sum.product && !only_shows(i, sum.from)) return false;
      if (!names(i, sum.into)) continue;
      made_before |= i < sum.product;
      if (i > sum.product && (i > sum.call || !only_shows(i, sum.into))) return false;
    }
    return made_before;
  }
  void fuse(const Sum& sum) {
    for (size_t i = 0; i < body_.calls.size(); ++i)
      if (i != sum.product && names(i, sum.from)) dropped_[i] = 1;
    Call& product = body_.calls[sum.product];
    product.arguments = {sum.whole, product.arguments[0], product.arguments[1], int64_t{1}, int64_t{1}};
    product.op = fused_;
    product.results = {sum.whole};
    product.writes = {sum.into};
    for (GraphTensor& tensor : body_.tensors)
      if (tensor.storage == sum.made) tensor.storage = sum.into;
    for (Call& call : body_.calls)
      for (auto* list : {&call.arguments, &call.results})
        map_tensors(*list, [&](TensorId id) { return id == sum.result ? sum.first : id; });
  }

  TensorId base(StorageId storage) const { return body_.storages[storage.index()].base; }
  bool is_handed_over(StorageId storage) const {
    return std::any_of(body_.writes.begin(), body_.writes.end(),
                       [&](const ContentUse& use) { return body_[use.inside].storage == storage; });
  }
  bool names(size_t call, StorageId storage) const {
    bool any = false;
    for (const auto* list : {&body_.calls[call].arguments, &body_.calls[call].results})
      each_tensor(*list, [&](TensorId id) { any |= body_[id].storage == storage; });
    return any && !dropped_[call];
  }
  bool only_shows(size_t call, StorageId storage) const { return shows_only(body_, body_.calls[call], storage); }

  ChunkIr& body_;
  const OperatorGraph& graph_;
  const OperatorId fused_;
  std::vector<char> dropped_;  // by call
};

}  // namespace

ChunkIr accumulate_where_computed(ChunkIr body, const OperatorGraph& graph) {
  Fusion(body, graph).run();
  return body;
}

ChunkIr add_in_products(ChunkIr body, const OperatorGraph& graph) {
  SumFusion(body, graph).run();
  return body;
}

ChunkIr accumulate_together(ChunkIr body, const OperatorGraph& graph) {
  const OperatorId together = find_operator(graph, "piper::add_to_each");
  if (!together.valid()) return body;
  std::unordered_map<StorageId, int> writes;  // how often somebody does: the order of several is kept
  for (const Call& call : body.calls)
    for (const StorageId storage : call.writes) ++writes[storage];
  const auto can_wait = [&](const Call& call) {
    if (graph[call.op].name != "aten::add_.Tensor") return false;
    const TensorId into = std::get<TensorId>(call.arguments[0]), from = std::get<TensorId>(call.arguments[1]);
    const TensorLayout &sum = body[into].layout, &value = body[from].layout;
    return is_gradient(body, into) && writes[body[into].storage] == 1 && writes[body[from].storage] == 0 &&
           element_count(value) <= small_elements && sum.sizes == value.sizes && is_contiguous(sum) &&
           is_contiguous(value);
  };
  std::map<std::pair<int8_t, int8_t>, std::vector<size_t>> waiting;  // by both types
  for (size_t i = 0; i < body.calls.size(); ++i)
    if (const Call& call = body.calls[i]; can_wait(call))
      waiting[{body[std::get<TensorId>(call.arguments[0])].layout.element,
               body[std::get<TensorId>(call.arguments[1])].layout.element}]
          .push_back(i);
  std::vector<char> dropped(body.calls.size(), 0);
  std::vector<Call> sums;
  for (const auto& [types, calls] : waiting) {
    if (calls.size() < 2) continue;
    TensorList to, from;
    Call& sum = sums.emplace_back();
    for (const size_t i : calls) {
      dropped[i] = 1;
      to.tensors.push_back(std::get<TensorId>(body.calls[i].arguments[0]));
      from.tensors.push_back(std::get<TensorId>(body.calls[i].arguments[1]));
      sum.writes.push_back(body[to.tensors.back()].storage);
    }
    sum.op = together;
    sum.arguments = {std::move(to), std::move(from)};
  }
  drop_calls(body, dropped);
  for (Call& sum : sums) body.calls.push_back(std::move(sum));
  return body;
}

TORCH_LIBRARY(piper, m) {
  m.def("add_to_each(Tensor(a!)[] to, Tensor[] from) -> ()");
  m.def("add_sum_of_rows(Tensor(a!) to, Tensor rows) -> Tensor(a!)");
}

}  // namespace piper
