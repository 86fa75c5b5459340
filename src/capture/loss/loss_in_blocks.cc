#include "capture/loss/loss_in_blocks.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace piper {
namespace {

/// The calls of a loss, and what they work on.
struct FoundLoss {
  CallId product, loss, loss_backward;        // mm, nll_loss_forward, nll_loss_backward
  TensorId table, hidden, targets;            // [vocabulary, width], [tokens, width], [tokens]
  std::optional<CallId> of_hidden, of_table;  // products that give the gradients
  std::set<CallId> calls;                     // all of them, with views and conversions
  std::set<StorageId> inside;                 // what only they may see: logits, and gradients of logits
};

class LossFinder {
 public:
  explicit LossFinder(const OperatorGraph& graph) : graph_(graph), users_(graph.storages.size()) {
    for (size_t c = 0; c < graph.calls.size(); ++c)
      for (const auto* list : {&graph.calls[c].arguments, &graph.calls[c].results})
        each_tensor(*list, [&](TensorId id) { users_[graph[id].storage.index()].insert(CallId(c)); });
  }

  std::optional<FoundLoss> find(CallId loss) {
    found_ = {};
    found_.loss = loss;
    return find_forward() && find_backward() && nobody_else_looks() ? std::optional(found_) : std::nullopt;
  }

 private:
  const std::string& name(CallId call) const { return graph_[graph_[call].op].name; }
  const std::vector<int64_t>& sizes(TensorId id) const { return graph_[id].layout.sizes; }
  TensorId tensor(CallId call, std::string_view argument) const {
    const Argument* found = find_argument(graph_, graph_[call], argument);
    const auto* id = found ? std::get_if<TensorId>(found) : nullptr;
    return id ? *id : TensorId();
  }
  TensorId result(CallId call, size_t i = 0) const { return std::get<TensorId>(graph_[call].results[i]); }
  bool same_elements(TensorId a, TensorId b) const {
    return element_count(graph_[a].layout) == element_count(graph_[b].layout) && is_contiguous(graph_[a].layout) &&
           is_contiguous(graph_[b].layout);
  }
  /// All of what it takes, in the same order; maybe in another type.
  bool passes_on(CallId call) const {
    const Call& of = graph_[call];
    if (!of.writes.empty() || of.results.size() != 1 || !std::holds_alternative<TensorId>(of.results[0])) return false;
    if (name(call) != "aten::_to_copy" && !is_view(graph_, of)) return false;
    const auto* from = std::get_if<TensorId>(&of.arguments[0]);
    return from && from->valid() && same_elements(*from, result(call));
  }
  void take(CallId call) {
    found_.calls.insert(call);
    each_tensor(graph_[call].results, [&](TensorId id) { found_.inside.insert(graph_[id].storage); });
  }
  /// What it was before it was looked at in other ways.
  TensorId origin(TensorId id) {
    while (graph_[id].producer.valid() && passes_on(graph_[id].producer)) {
      take(graph_[id].producer);
      id = std::get<TensorId>(graph_[graph_[id].producer].arguments[0]);
    }
    return id;
  }
  /// The call of this name that made it.
  std::optional<CallId> maker(TensorId id, std::string_view op) {
    const CallId producer = graph_[origin(id)].producer;
    if (!producer.valid() || name(producer) != op) return std::nullopt;
    take(producer);
    return producer;
  }
  bool is_transposed(TensorId id, TensorId of) const {
    const TensorLayout &a = graph_[id].layout, &b = graph_[of].layout;
    return a.sizes.size() == 2 && b.sizes.size() == 2 && graph_[id].storage == graph_[of].storage &&
           a.offset == b.offset && a.sizes[0] == b.sizes[1] && a.sizes[1] == b.sizes[0] &&
           a.strides[0] == b.strides[1] && a.strides[1] == b.strides[0];
  }
  bool is_same(TensorId id, TensorId as) const {
    return graph_[id].storage == graph_[as].storage && graph_[id].layout == graph_[as].layout;
  }

  bool find_forward() {
    const TensorId logs = tensor(found_.loss, "self"), weight = tensor(found_.loss, "weight");
    found_.targets = tensor(found_.loss, "target");
    if (weight.valid() || sizes(logs).size() != 2 || sizes(found_.targets).size() != 1) return false;
    const auto softmax = maker(logs, "aten::_log_softmax");
    if (!softmax) return false;
    const int64_t dim = std::get<int64_t>(*find_argument(graph_, graph_[*softmax], "dim"));
    const TensorId scores = tensor(*softmax, "self");
    if (sizes(scores) != sizes(logs) || (dim != 1 && dim != -1)) return false;
    const auto product = maker(scores, "aten::mm");
    if (!product || sizes(result(*product)) != sizes(logs)) return false;
    found_.product = *product;
    found_.hidden = tensor(*product, "self");
    const TensorId turned = tensor(*product, "mat2");
    const CallId view = graph_[turned].producer;
    if (!view.valid() || !is_view(graph_, graph_[view])) return false;
    found_.table = std::get<TensorId>(graph_[view].arguments[0]);
    return is_transposed(turned, found_.table) && is_contiguous(graph_[found_.table].layout) &&
           is_contiguous(graph_[found_.hidden].layout);
  }

  bool find_backward() {
    const StorageId logs = graph_[tensor(found_.loss, "self")].storage;
    std::optional<CallId> softmax;
    for (const CallId user : users_[logs.index()]) {
      if (name(user) == "aten::nll_loss_backward" && is_same(tensor(user, "target"), found_.targets))
        found_.loss_backward = user;
      if (name(user) == "aten::_log_softmax_backward_data") softmax = user;
    }
    if (!found_.loss_backward.valid() || !softmax) return false;
    if (maker(tensor(*softmax, "grad_output"), "aten::nll_loss_backward") != found_.loss_backward) return false;
    take(*softmax);
    return follow(result(*softmax));
  }
  /// Everything that is made of the gradient of the logits.
  bool follow(TensorId gradient) {
    const StorageId storage = graph_[gradient].storage;
    for (const CallId user : users_[storage.index()]) {
      if (found_.calls.contains(user)) continue;
      if (name(user) == "aten::mm") {
        if (!take_gradient(user, storage)) return false;
      } else if (passes_on(user)) {
        take(user);
        if (graph_[result(user)].storage != storage && !follow(result(user))) return false;
      } else if (is_view(graph_, graph_[user])) {
        take(user);  // who looks at it is asked next
      } else {
        return false;
      }
    }
    return true;
  }
  /// dh = d w, or dw = t(d) h
  bool take_gradient(CallId product, StorageId gradient) {
    const TensorId left = tensor(product, "self"), right = tensor(product, "mat2"), made = result(product);
    const bool rows = sizes(left) == sizes(result(found_.product)) && is_contiguous(graph_[left].layout);
    if (graph_[left].storage != gradient || graph_[right].storage == gradient) return false;
    std::optional<CallId>& which = rows ? found_.of_hidden : found_.of_table;
    if (which || !is_contiguous(graph_[made].layout)) return false;
    if (!is_same(right, rows ? found_.table : found_.hidden) ||
        sizes(made) != sizes(rows ? found_.hidden : found_.table))
      return false;
    which = product;
    found_.calls.insert(product);
    return true;
  }

  bool nobody_else_looks() {
    if (!found_.of_hidden && !found_.of_table) return false;
    for (const StorageId storage : found_.inside)  // who looks through a view is one of its users as well
      for (const CallId user : users_[storage.index()])
        if (is_view(graph_, graph_[user])) found_.calls.insert(user);
    for (const StorageId storage : found_.inside) {
      if (graph_[graph_.loss].storage == storage) return false;
      for (const Contribution& gradient : graph_.gradients)
        if (graph_[gradient.value].storage == storage) return false;
      for (const CallId user : users_[storage.index()])
        if (!found_.calls.contains(user) && user != found_.loss) return false;
    }
    return true;
  }

  const OperatorGraph& graph_;
  std::vector<std::set<CallId>> users_;  // by storage: calls that name it
  FoundLoss found_;
};

/// Writes the graph again, with other calls in place of those that were found.
class LossRewriter {
 public:
  LossRewriter(OperatorGraph graph, const std::vector<FoundLoss>& losses, std::optional<int64_t> block)
      : old_(std::move(graph.calls)), graph_(std::move(graph)), losses_(losses), block_(block) {}

  OperatorGraph run() {
    std::vector<CallId> place(old_.size());  // new ids of old calls
    for (size_t c = 0; c < old_.size(); ++c) {
      if (!replace(CallId(c))) graph_.calls.push_back(old_[c]);
      place[c] = CallId(std::max<size_t>(graph_.calls.size(), 1) - 1);
    }
    for (size_t l = 0; l < losses_.size(); ++l) place[losses_[l].product.index()] = blocks_.at(l);
    for (Call& call : graph_.calls)
      if (call.forward.valid()) call.forward = place[call.forward.index()];
    find_producers(graph_.tensors, graph_.calls);
    return std::move(graph_);
  }

 private:
  bool replace(CallId id) {
    for (size_t l = 0; l < losses_.size(); ++l) {
      const FoundLoss& loss = losses_[l];
      from_ = &old_[id.index()];
      if (id == loss.loss) {
        forward(l);
      } else if (id == loss.loss_backward) {
        rows_[l] = gradient_of_tokens(loss);
      } else if (id == first_gradient(loss)) {
        backward(l);
      } else if (!loss.calls.contains(id)) {
        continue;
      }
      return true;
    }
    return false;
  }
  static CallId first_gradient(const FoundLoss& loss) {
    if (!loss.of_hidden || !loss.of_table) return loss.of_hidden ? *loss.of_hidden : *loss.of_table;
    return std::min(*loss.of_hidden, *loss.of_table);
  }

  // ---- new calls

  TensorId make(std::vector<int64_t> sizes, c10::ScalarType type) {
    const TensorId id(graph_.tensors.size());
    GraphTensor made;
    made.storage = StorageId(graph_.storages.size());
    made.layout = {static_cast<int8_t>(type), static_cast<int64_t>(c10::elementSize(type)), sizes,
                   std::vector<int64_t>(sizes.size(), 1), 0};
    graph_.storages.push_back({element_count(made.layout) * made.layout.element_bytes, id});
    graph_.tensors.push_back(std::move(made));
    return id;
  }
  TensorId emit(std::string_view op, std::vector<Argument> arguments, std::vector<Argument> results) {
    Call call;
    call.op = operator_named(graph_, op);
    call.arguments = std::move(arguments);
    call.results = std::move(results);
    call.segment = from_->segment;
    call.backward = from_->backward;
    call.forward = from_->forward;
    graph_.calls.push_back(std::move(call));
    return std::get<TensorId>(graph_.calls.back().results[0]);
  }
  c10::ScalarType type(TensorId id) const { return static_cast<c10::ScalarType>(graph_[id].layout.element); }
  void round(TensorId value, TensorId to) {
    emit("aten::_to_copy", {value, int64_t{graph_[to].layout.element}, None{}, None{}, None{}, false, None{}}, {to});
  }
  const Argument& argument(std::string_view name) const { return *find_argument(graph_, *from_, name); }
  int64_t tokens(const FoundLoss& loss) const { return graph_[loss.targets].layout.sizes[0]; }
  int64_t block(const FoundLoss& loss) const {
    return block_.value_or(std::max<int64_t>(1024, 2 * graph_[loss.table].layout.sizes[1]));
  }
  c10::ScalarType wide(const FoundLoss& loss) const {
    return c10::promoteTypes(type(loss.hidden), c10::ScalarType::Float);
  }
  TensorId ignored(const FoundLoss& loss, std::string_view compare) {
    return emit(compare, {loss.targets, argument("ignore_index")}, {make({tokens(loss)}, c10::ScalarType::Bool)});
  }

  void forward(size_t l) {
    const FoundLoss& loss = losses_[l];
    const auto reduction = static_cast<Reduction>(std::get<int64_t>(argument("reduction")));
    const TensorId sums = make({tokens(loss)}, wide(loss)), picked = make({tokens(loss)}, wide(loss));
    emit("piper::logits_in_blocks", {loss.table, loss.hidden, loss.targets, argument("ignore_index"), block(loss)},
         {sums, picked});
    blocks_[l] = CallId(graph_.calls.size() - 1);
    logsumexp_[l] = sums;
    TensorId each = emit("aten::sub.Tensor", {sums, picked, int64_t{1}}, {make({tokens(loss)}, wide(loss))});
    each = emit("aten::masked_fill.Scalar", {each, ignored(loss, "aten::eq.Scalar"), 0.0},
                {make({tokens(loss)}, wide(loss))});
    const TensorId out = std::get<TensorId>(from_->results[0]), known = std::get<TensorId>(from_->results[1]);
    const TensorId counted = ignored(loss, "aten::ne.Scalar");
    const TensorId count = known.valid() ? known : make({}, type(out));
    emit("aten::sum", {counted, int64_t{graph_[count].layout.element}}, {count});
    if (reduction != Reduction::None) each = emit("aten::sum", {each, None{}}, {make({}, wide(loss))});
    if (reduction == Reduction::Mean) each = emit("aten::div.Tensor", {each, count}, {make({}, wide(loss))});
    round(each, out);
  }
  TensorId gradient_of_tokens(const FoundLoss& loss) {
    TensorId each = std::get<TensorId>(argument("grad_output"));
    const auto reduction = static_cast<Reduction>(std::get<int64_t>(argument("reduction")));
    const std::vector<int64_t> shape = graph_[each].layout.sizes;
    if (type(each) != wide(loss)) {
      const TensorId widened = make(shape, wide(loss));
      round(each, widened);
      each = widened;
    }
    if (reduction == Reduction::Mean)
      each = emit("aten::div.Tensor", {each, argument("total_weight")}, {make(shape, wide(loss))});
    return emit("aten::masked_fill.Scalar", {each, ignored(loss, "aten::eq.Scalar"), 0.0},
                {make({tokens(loss)}, wide(loss))});
  }
  void backward(size_t l) {
    const FoundLoss& loss = losses_[l];
    const auto made = [&](const std::optional<CallId>& call) {
      return call ? std::get<TensorId>(old_[call->index()].results[0]) : TensorId();
    };
    emit("piper::logits_in_blocks_backward",
         {loss.table, loss.hidden, loss.targets, logsumexp_.at(l), rows_.at(l), int64_t{0}, block(loss),
          Bools{loss.of_hidden.has_value(), loss.of_table.has_value()}},
         {made(loss.of_hidden), made(loss.of_table)});
    graph_.calls.back().segment = old_[loss.loss.index()].segment;  // where logits are made
  }

  std::vector<Call> old_;
  OperatorGraph graph_;
  const std::vector<FoundLoss>& losses_;
  const std::optional<int64_t> block_;
  const Call* from_ = nullptr;
  std::map<size_t, CallId> blocks_;              // by loss: what makes logits
  std::map<size_t, TensorId> logsumexp_, rows_;  // by loss
};

}  // namespace

std::optional<LossBlocks> loss_blocks_of(int64_t tokens) {
  return tokens > 0 ? std::optional(LossBlocks{1, tokens}) : std::nullopt;
}

OperatorGraph loss_in_blocks(OperatorGraph graph, const LossBlocks& blocks) {
  std::vector<FoundLoss> found;
  LossFinder finder(graph);
  for (size_t c = 0; c < graph.calls.size(); ++c) {
    if (graph[graph.calls[c].op].name != "aten::nll_loss_forward") continue;
    const auto loss = finder.find(CallId(c));
    if (loss && graph[loss->table].layout.sizes[0] >= blocks.smallest_vocabulary) found.push_back(*loss);
  }
  return found.empty() ? graph : LossRewriter(std::move(graph), found, blocks.tokens).run();
}

}  // namespace piper
