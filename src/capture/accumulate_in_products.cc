#include "capture/accumulate_in_products.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <string_view>

namespace piper {
namespace {

bool is_narrow(const TensorLayout& layout) {
  const auto type = static_cast<c10::ScalarType>(layout.element);
  return type == c10::ScalarType::BFloat16 || type == c10::ScalarType::Half;
}

class Fusion {
 public:
  Fusion(PassBody& body, const OperatorGraph& graph)
      : body_(body), graph_(graph), dropped_(body.calls.size(), 0), users_(body.storages.size()) {
    for (size_t i = 0; i < body.calls.size(); ++i)
      for (const auto* list : {&body.calls[i].arguments, &body.calls[i].results})
        each_tensor(*list, [&](TensorId id) {
          std::vector<size_t>& users = users_[body[id].storage.index()];
          if (users.empty() || users.back() != i) users.push_back(i);
        });
    for (size_t i = 0; i < graph.operators.size(); ++i)
      if (graph.operators[i].name == "aten::addmm.dtype_out") fused_ = OperatorId(i);
  }

  void run() {
    if (!fused_.valid()) return;
    for (size_t i = 0; i < body_.calls.size(); ++i)
      if (is(i, "aten::mm")) fuse(i);
    drop();
  }

 private:
  bool is(size_t call, std::string_view name) const { return graph_[body_.calls[call].op].name == name; }

  /// The product is used by views and one sum, and the sum sees it as it was made.
  void fuse(size_t product) {
    const TensorId result = std::get<TensorId>(body_.calls[product].results[0]);
    const StorageId storage = body_[result].storage;
    if (std::any_of(body_.writes.begin(), body_.writes.end(),
                    [&](const ContentUse& use) { return body_[use.inside].storage == storage; }))
      return;
    size_t sum = product;
    for (const size_t user : users_[storage.index()]) {
      if (user == product || is_view_of(user, storage)) continue;
      if (sum != product || !is(user, "aten::add_.Tensor")) return;
      sum = user;
    }
    if (sum == product) return;
    const TensorId into = std::get<TensorId>(body_.calls[sum].arguments[0]),
                   value = std::get<TensorId>(body_.calls[sum].arguments[1]);
    const TensorLayout &wide = body_[into].layout, &made = body_[result].layout;
    const bool is_gradient = std::any_of(body_.gradients.begin(), body_.gradients.end(),
                                         [&](const ExternalUse& use) { return use.inside == into; });
    if (!is_gradient || body_[value].storage != storage || !(body_[value].layout == made) || !is_narrow(made) ||
        wide.sizes != made.sizes || static_cast<c10::ScalarType>(wide.element) != c10::ScalarType::Float)
      return;
    for (const size_t user : users_[storage.index()])
      if (user != product) dropped_[user] = 1;
    Call& call = body_.calls[product];
    const int64_t one = 1;
    call.arguments = {into, call.arguments[0], call.arguments[1], int64_t{wide.element}, one, one, into};
    call.op = fused_;
    call.results = {into};
    call.writes = {body_[into].storage};
  }
  /// It only shows the storage in another way, whoever looks.
  bool is_view_of(size_t index, StorageId storage) const {
    const Call& call = body_.calls[index];
    bool only = call.writes.empty();
    for (const auto* list : {&call.arguments, &call.results})
      each_tensor(*list, [&](TensorId id) { only &= body_[id].storage == storage; });
    return only;
  }

  void drop() {
    std::vector<Call> kept;
    std::vector<CallId> now(body_.calls.size());
    for (size_t i = 0; i < body_.calls.size(); ++i) {
      if (dropped_[i]) continue;
      now[i] = CallId(kept.size());
      kept.push_back(std::move(body_.calls[i]));
    }
    body_.calls = std::move(kept);
    for (GraphTensor& tensor : body_.tensors)
      if (tensor.producer.valid()) tensor.producer = now[tensor.producer.index()];
  }

  PassBody& body_;
  const OperatorGraph& graph_;
  std::vector<char> dropped_;               // by call
  std::vector<std::vector<size_t>> users_;  // by storage: calls that name it
  OperatorId fused_;
};

}  // namespace

PassBody accumulate_in_products(PassBody body, const OperatorGraph& graph) {
  Fusion(body, graph).run();
  return body;
}

}  // namespace piper
