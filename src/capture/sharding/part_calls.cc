#include "capture/sharding/part_calls.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <optional>

#include "base/invariant.h"
#include "capture/sharding/operator_rules.h"
#include "capture/sharding/partial_sums.h"

namespace piper {
namespace {

bool is_none(const Argument& argument) {
  const auto* tensor = std::get_if<TensorId>(&argument);
  return std::holds_alternative<None>(argument) || (tensor && !tensor->valid());
}
bool is_range(const std::string& op) {
  return op == "aten::arange" || op == "aten::arange.start" || op == "aten::arange.start_step";
}
bool is_one(const Argument& argument) {
  const auto* whole = std::get_if<int64_t>(&argument);
  const auto* number = std::get_if<double>(&argument);
  return (whole && *whole == 1) || (number && *number == 1);
}

class Parter {
 public:
  Parter(OperatorGraph graph, BodyLabels labels) : old_(std::move(graph.calls)) {
    out_.graph = std::move(graph);
    out_.labels = std::move(labels);
  }

  PartedGraph run() {
    std::vector<CallId> place(old_.size());  // new ids of old calls
    for (size_t c = 0; c < old_.size(); ++c) {
      from_ = &old_[c];
      place[c] = part();
    }
    for (Call& call : calls())
      if (call.forward.valid()) call.forward = place[call.forward.index()];
    find_producers(out_.graph.tensors, out_.graph.calls);
    return std::move(out_);
  }

 private:
  std::vector<Call>& calls() { return out_.graph.calls; }

  // ---- what a call is along

  const TensorLabels& of(TensorId id) const { return out_.labels.tensors[id.index()]; }
  const Argument& argument(std::string_view name) const {
    const Argument* found = find_argument(out_.graph, *from_, name);
    invariant(found, "an operator has the arguments it is known for");
    return *found;
  }
  TensorId tensor(std::string_view name) const { return std::get<TensorId>(argument(name)); }
  int64_t number(std::string_view name) const { return std::get<int64_t>(argument(name)); }
  TensorId result(size_t i = 0) const { return std::get<TensorId>(from_->results[i]); }
  int64_t size(TensorId id, size_t dim) const { return out_.graph[id].layout.sizes[dim]; }
  bool is_sharded(TensorId id, size_t dim) const { return has(of(id).dims[dim], Mark::Sharded); }
  /// Of a softmax.
  size_t along() const {
    const int64_t written = number("dim");
    const size_t rank = out_.graph[result()].layout.sizes.size();
    return static_cast<size_t>(written < 0 ? written + static_cast<int64_t>(rank) : written);
  }

  /// What stands for the call afterwards, for the backward calls that belong to it.
  CallId part() {
    const std::string& name = out_.graph[from_->op].name;
    if (name == "aten::embedding" && is_sharded(tensor("weight"), 0)) return take_rows();
    if (name == "aten::embedding_dense_backward" && is_sharded(result(), 0)) return take_rows_backward();
    if (name == "aten::_log_softmax" && is_sharded(result(), along())) return log_softmax();
    if (name == "aten::_log_softmax_backward_data" && is_sharded(result(), along())) return log_softmax_backward();
    if (name == "aten::nll_loss_forward" && is_sharded(tensor("self"), 1)) return pick_losses();
    if (name == "aten::nll_loss_backward" && is_sharded(result(), 1)) return pick_losses_backward();
    if (name == "piper::logits_in_blocks" && is_sharded(tensor("table"), 0)) return logits_of_part();
    if (name == "piper::logits_in_blocks_backward" && is_sharded(tensor("table"), 0)) return logits_of_part_backward();
    if (is_range(name) && is_sharded(result(), 0)) return slice_range();
    if (name == "aten::mean.dim" && averages_parts()) return sum_and_count();
    if ((name == "aten::addmm" || name == "aten::baddbmm") && !from_->backward && is_one(argument("beta")) &&
        is_one(argument("alpha")) && sums_over(out_.graph, out_.labels, *from_, result(), Mark::Sharded))
      return product_and_bias();
    calls().push_back(*from_);
    return last();
  }
  CallId last() { return CallId(calls().size() - 1); }

  // ---- new calls

  TensorId make(std::vector<int64_t> sizes, TensorId like, std::optional<c10::ScalarType> type = {}) {
    const TensorId id(out_.graph.tensors.size());
    GraphTensor made = out_.graph[like];
    made.kind = TensorKind::Result;
    made.name.clear();
    made.storage = StorageId(out_.graph.storages.size());
    made.layout.sizes = std::move(sizes);
    made.layout.offset = 0;
    made.layout.strides.assign(made.layout.sizes.size(), 1);
    for (size_t d = made.layout.sizes.size(); d-- > 1;)
      made.layout.strides[d - 1] = made.layout.strides[d] * made.layout.sizes[d];
    if (type) {
      made.layout.element = static_cast<int8_t>(*type);
      made.layout.element_bytes = static_cast<int64_t>(c10::elementSize(*type));
    }
    out_.graph.storages.push_back({element_count(made.layout) * made.layout.element_bytes, id});
    out_.labels.tensors.push_back(unknown_labels(made.layout.sizes));
    out_.graph.tensors.push_back(std::move(made));
    settle(out_.labels.tensors.back());
    return id;
  }
  /// Sharded as the other is.
  TensorId make_like(TensorId other, std::optional<c10::ScalarType> type = {}) {
    const TensorId id = make(out_.graph[other].layout.sizes, other, type);
    out_.labels.tensors[id.index()] = of(other);
    return id;
  }
  TensorId emit(std::string_view op, std::vector<Argument> arguments, TensorId result, bool in_place = false) {
    Call call;
    call.op = operator_named(out_.graph, op);
    call.arguments = std::move(arguments);
    call.results = {result};
    if (in_place) call.writes = {out_.graph[result].storage};
    call.segment = from_->segment;
    call.backward = from_->backward;
    call.forward = from_->forward;
    calls().push_back(std::move(call));
    return result;
  }
  TensorId emit_inside(std::string_view op, std::vector<Argument> arguments, TensorId result) {
    emit(op, std::move(arguments), result);
    out_.inside.insert(last());
    return result;
  }
  /// In at least 32 bits, as ATen computes.
  TensorId widened(TensorId id) {
    if (out_.graph[id].layout.element_bytes >= 4) return id;
    return convert(id, make_like(id, c10::ScalarType::Float));
  }
  TensorId convert(TensorId from, TensorId to) {
    return emit("aten::_to_copy", {from, int64_t{out_.graph[to].layout.element}, None{}, None{}, None{}, false, None{}},
                to);
  }
  /// Where a result is computed, before it is rounded to its own type.
  TensorId wide_of(TensorId to) {
    return out_.graph[to].layout.element_bytes >= 4 ? to : make_like(to, c10::ScalarType::Float);
  }
  void round(TensorId value, TensorId to) {
    if (value != to) convert(value, to);
  }

  // ---- a table of which each device has some rows

  ///   before:  y = embedding(w, i)       after:  y = take_rows(w, i, first): each device those rows that it has
  CallId take_rows() {
    const TensorId table = tensor("weight");
    emit("piper::take_rows", {table, tensor("indices"), PartStart{size(table, 0)}}, result());
    return last();
  }
  CallId take_rows_backward() {
    const std::vector<int64_t> sizes = out_.graph[result()].layout.sizes;
    emit("piper::take_rows_backward",
         {tensor("grad_output"), tensor("indices"), sizes, number("padding_idx"), PartStart{sizes[0]}}, result());
    return last();
  }

  // ---- a softmax over parts, and its loss

  ///   before:  l = log_softmax(x)
  ///   after:   m = amax(x); e = exp(x - m); z = sum(e); l = x - m - log(z)     m and z are parts on each device
  CallId log_softmax() {
    const size_t dim = along();
    const int64_t at = static_cast<int64_t>(dim);
    const TensorId x = widened(tensor("self"));
    std::vector<int64_t> sizes = out_.graph[x].layout.sizes;
    sizes[dim] = 1;
    const TensorId most = emit("aten::amax", {x, Ints{at}, true}, make(sizes, x));
    const TensorId powers = emit("aten::sub.Tensor", {x, most, int64_t{1}}, make_like(x));
    emit("aten::exp_", {powers}, powers, true);
    const TensorId sum = emit("aten::sum.dim_IntList", {powers, Ints{at}, true, None{}}, make(sizes, x));
    const TensorId log = emit_inside("aten::log", {sum}, make(sizes, x));
    const TensorId out = wide_of(result());
    emit("aten::sub.Tensor", {x, most, int64_t{1}}, out);
    emit("aten::sub_.Tensor", {out, log, int64_t{1}}, out, true);
    const CallId stands = last();
    round(out, result());
    return stands;
  }
  ///   before:  d = log_softmax_backward(g, l)        after:  d = g - exp(l) * s, where s are the sums of the rows of g
  CallId log_softmax_backward() {
    const TensorId sums = row_sums_.at(tensor("grad_output"));
    const TensorId gradient = widened(tensor("grad_output")), logs = widened(tensor("output"));
    const TensorId column = column_of(widened(sums));
    const TensorId part = emit("aten::exp", {logs}, make_like(logs));
    emit("aten::mul_.Tensor", {part, column}, part, true);
    const TensorId out = wide_of(result());
    emit("aten::sub.Tensor", {gradient, part, int64_t{1}}, out);
    round(out, result());
    return last();
  }
  /// A view, which has no storage of its own.
  TensorId column_of(TensorId numbers) {
    const TensorId view = make({size(numbers, 0), 1}, numbers);
    out_.graph.storages.pop_back();
    out_.graph.tensors[view.index()].storage = out_.graph[numbers].storage;
    return emit("aten::unsqueeze", {numbers, int64_t{1}}, view);
  }

  ///   before:  loss, count = nll_loss(l, t)
  ///   after:   p = take_columns(l, t, first); s = sum(p); loss = -s / count        s is a part on each device
  CallId pick_losses() {
    const TensorId logs = tensor("self"), targets = tensor("target");
    const int64_t rows = size(logs, 0), ignored = number("ignore_index");
    const auto reduction = static_cast<Reduction>(number("reduction"));
    TensorId taken =
        emit("piper::take_columns", {logs, targets, ignored, PartStart{size(logs, 1)}}, make({rows}, logs));
    const CallId stands = last();
    if (reduction != Reduction::None) taken = emit("aten::sum", {taken, None{}}, make({}, logs));
    const TensorId counted = emit("aten::ne.Scalar", {targets, ignored}, make({rows}, targets, c10::ScalarType::Bool));
    const TensorId count = result(1).valid() ? result(1) : make({}, logs);
    emit("aten::sum", {counted, int64_t{out_.graph[count].layout.element}}, count);
    if (reduction == Reduction::Mean) taken = emit("aten::div.Tensor", {taken, count}, make({}, logs));
    emit("aten::neg", {taken}, result());
    return stands;
  }
  ///   before:  d = nll_loss_backward(g, t)           after:  d = take_columns_backward(-g / count, t, first)
  CallId pick_losses_backward() {
    const TensorId targets = tensor("target");
    const std::vector<int64_t> sizes = out_.graph[result()].layout.sizes;
    const auto reduction = static_cast<Reduction>(number("reduction"));
    TensorId each = tensor("grad_output");
    const std::vector<int64_t> shape = out_.graph[each].layout.sizes;
    if (reduction == Reduction::Mean)
      each = emit("aten::div.Tensor", {each, tensor("total_weight")}, make(shape, each));
    each = emit("aten::neg", {each}, make(shape, each));
    const TensorId ignored =
        emit("aten::eq.Scalar", {targets, number("ignore_index")}, make({sizes[0]}, targets, c10::ScalarType::Bool));
    const TensorId rows = emit("aten::masked_fill.Scalar", {each, ignored, 0.0}, make({sizes[0]}, each));
    emit("piper::take_columns_backward", {rows, targets, sizes, PartStart{sizes[1]}}, result());
    row_sums_[result()] = rows;
    return last();
  }

  ///   before:  s, p = logits_in_blocks(w, h, t)
  ///   after:   m = logits_in_blocks_max(w, h); z, p = logits_in_blocks_sum(w, h, t, m, first); s = log(z) + m
  /// m, z and p are parts on each device.
  CallId logits_of_part() {
    const TensorId table = tensor("table"), hidden = tensor("hidden");
    const std::vector<int64_t> sizes = out_.graph[result()].layout.sizes;
    const TensorId most = emit("piper::logits_in_blocks_max", {table, hidden, number("block")}, make(sizes, result()));
    const TensorId sum =
        emit("piper::logits_in_blocks_sum",
             {table, hidden, tensor("targets"), most, number("ignored"), PartStart{size(table, 0)}, number("block")},
             make(sizes, result()));
    calls().back().results = {sum, result(1)};
    const CallId stands = last();
    const TensorId log = emit("aten::log", {sum}, make(sizes, result()));
    emit("aten::add.Tensor", {log, most, int64_t{1}}, result());
    return stands;
  }

  ///   before:  dh, dw = logits_in_blocks_backward(w, h, t, s, g, 0)        after:  the same, with its first word
  CallId logits_of_part_backward() {
    const std::vector<std::string>& names = out_.graph[from_->op].arguments;
    calls().push_back(*from_);
    calls().back().arguments[static_cast<size_t>(std::ranges::find(names, "first") - names.begin())] =
        PartStart{size(tensor("table"), 0)};
    return last();
  }

  // ---- numbers that depend on the position

  ///   before:  r = arange(n)        after:  w = arange(n); r = local_slice(w, first)
  CallId slice_range() {
    const std::vector<int64_t> sizes = out_.graph[result()].layout.sizes;
    const TensorId all = make(sizes, result());
    Call range = *from_;
    range.results = {all};
    calls().push_back(std::move(range));
    emit("piper::local_slice", {all, sizes, PartStart{sizes[0]}, int64_t{0}, int64_t{1}, int64_t{1}, false}, result());
    return last();
  }

  // ---- a mean

  std::vector<size_t> averaged() const {
    const size_t rank = of(tensor("self")).dims.size();
    std::vector<size_t> dims;
    if (const auto* named = std::get_if<Ints>(&argument("dim")))
      for (const int64_t dim : *named)
        dims.push_back(static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim));
    for (size_t d = 0; dims.empty() && d < rank; ++d) dims.push_back(d);
    return dims;
  }
  bool averages_parts() const {
    const std::vector<size_t> dims = averaged();
    return std::any_of(dims.begin(), dims.end(), [&](size_t dim) { return is_sharded(tensor("self"), dim); });
  }
  ///   before:  m = mean(x)        after:  s = sum(x); m = s / count        s is a part on each device
  CallId sum_and_count() {
    int64_t count = 1;
    for (const size_t dim : averaged()) count *= size(tensor("self"), dim);
    const TensorId sum =
        emit("aten::sum.dim_IntList", {tensor("self"), argument("dim"), argument("keepdim"), argument("dtype")},
             make_like(result()));
    const CallId summed = last();
    emit("aten::div.Scalar", {sum, count}, result());
    out_.parts_of[last()] = summed;
    return last();
  }

  // ---- a bias

  ///   before:  y = addmm(b, x, w)        after:  p = mm(x, w); y = add(p, b): behind the sum, once
  CallId product_and_bias() {
    const TensorId product = out_.graph[from_->op].name == "aten::addmm"
                                 ? emit("aten::mm", {tensor("mat1"), tensor("mat2")}, make_like(result()))
                                 : emit("aten::bmm", {tensor("batch1"), tensor("batch2")}, make_like(result()));
    const CallId summed = last();
    emit("aten::add.Tensor", {product, tensor("self"), int64_t{1}}, result());
    out_.parts_of[last()] = summed;
    return last();
  }

  std::vector<Call> old_;
  const Call* from_ = nullptr;
  PartedGraph out_;
  std::map<TensorId, TensorId> row_sums_;  // of gradients that have one number in each row
};

}  // namespace

bool can_be_parted(const OperatorGraph& graph, const BodyLabels& labels, const Call& call, const MustBePlain& where) {
  const std::string& name = graph[call.op].name;
  if (name == "aten::mean.dim") return true;
  const Factors& dim = labels.tensors[where.tensor.index()].dims[where.dim];
  // parts that are not one after another
  if (dim.empty() || dim[0].mark != Mark::Sharded || !dim[0].borders.empty()) return false;
  const auto is_false = [&](const char* flag) { return !std::get<bool>(*find_argument(graph, call, flag)); };
  const auto is_loss = [&](const Call& of) {
    const TensorId scores = std::get<TensorId>(*find_argument(graph, of, "self"));
    return graph[scores].layout.sizes.size() == 2 && is_none(*find_argument(graph, of, "weight"));
  };
  if (name == "aten::embedding") return is_false("scale_grad_by_freq") && is_false("sparse");
  if (name == "aten::embedding_dense_backward") return is_false("scale_grad_by_freq");
  if (name == "aten::_log_softmax" || is_range(name)) return true;
  if (name == "piper::logits_in_blocks") return where.tensor == std::get<TensorId>(call.arguments[0]);
  if (name == "aten::nll_loss_forward" || name == "aten::nll_loss_backward") return where.dim == 1 && is_loss(call);
  if (name == "aten::_log_softmax_backward_data") {  // of a loss: the sums of its rows need no other parts
    const CallId producer = graph[std::get<TensorId>(*find_argument(graph, call, "grad_output"))].producer;
    return producer.valid() && graph[graph[producer].op].name == "aten::nll_loss_backward" && is_loss(graph[producer]);
  }
  return false;
}

PartedGraph part_calls(OperatorGraph graph, BodyLabels labels) {
  return Parter(std::move(graph), std::move(labels)).run();
}

}  // namespace piper
