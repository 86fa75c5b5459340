#include <ATen/core/Reduction.h>

#include <map>

#include "base/overloaded.h"
#include "capture/record/batch_counts.h"

namespace piper {
namespace {

constexpr auto sum_reduction = static_cast<int64_t>(at::Reduction::Sum);

class Divider {
 public:
  Divider(OperatorGraph graph, int64_t samples) : graph_(std::move(graph)), samples_(samples) {}

  OperatorGraph run(const std::vector<BatchCount>& counts) {
    for (const BatchCount& count : counts)
      std::visit(overloaded{[&](const CountedLabels& labels) { divide_loss(labels, add_count(count, labels.loss)); },
                            [&](const CountedDivisor& divisor) {
                              replace(divisor.divisor.tensor, add_count(count, divisor.division));
                            }},
                 count.what);
    return with_added_calls();
  }

 private:
  TensorId make(std::vector<int64_t> sizes, const BatchCount& count, TensorKind kind) {
    GraphTensor tensor;
    tensor.kind = kind;
    tensor.storage = StorageId(graph_.storages.size());
    const auto bytes = static_cast<int64_t>(c10::elementSize(static_cast<c10::ScalarType>(count.element)));
    tensor.layout = {count.element, bytes, sizes, std::vector<int64_t>(sizes.size(), 1), 0};
    if (kind == TensorKind::Input) tensor.name = count.input;
    const TensorId id(graph_.tensors.size());
    graph_.storages.push_back({bytes * element_count(tensor.layout), id});
    graph_.tensors.push_back(std::move(tensor));
    return id;
  }
  Call call_like(CallId call, std::string_view op, std::vector<Argument> arguments, TensorId result) const {
    Call out;
    out.op = operator_named(graph_, op);
    out.arguments = std::move(arguments);
    out.results = {result};
    out.segment = graph_[call].segment;
    return out;
  }

  /// The number that a slice divides by, made of a new input before the call.
  TensorId add_count(const BatchCount& count, CallId user) {
    const TensorId input = make({samples_}, count, TensorKind::Input), number = make({}, count, TensorKind::Result);
    graph_.inputs.push_back(input);
    before_[user].push_back(call_like(user, "aten::mean", {input, None{}}, number));
    return number;
  }
  ///   before:  loss, n = nll_loss(l, t, mean);  d = nll_loss_backward(g, l, t, mean, n)
  ///   after:   s, n = nll_loss(l, t, sum);  loss = s / count;  d = nll_loss_backward(g, l, t, mean, count)
  void divide_loss(const CountedLabels& labels, TensorId count) {
    Call& call = graph_.calls[labels.loss.index()];
    argument(call, "reduction") = sum_reduction;
    const TensorId loss = std::get<TensorId>(call.results[0]), own_count = std::get<TensorId>(call.results[1]);
    const TensorId total(graph_.tensors.size());
    graph_.tensors.push_back(graph_[loss]);
    graph_.tensors[total.index()].storage = StorageId(graph_.storages.size());
    graph_.storages.push_back({graph_[graph_[loss].storage].bytes, total});
    call.results[0] = total;
    after_[labels.loss].push_back(call_like(labels.loss, "aten::div.Tensor", {total, count}, loss));
    for (Call& later : graph_.calls)
      if (later.backward && find_argument(graph_, later, "total_weight") &&
          argument(later, "total_weight") == Argument(own_count))
        argument(later, "total_weight") = count;
  }
  /// In divisions, forward and backward.
  void replace(TensorId divisor, TensorId count) {
    for (Call& call : graph_.calls) {
      const std::string& name = graph_[call.op].name;
      const bool divides = name.starts_with("aten::div.") || name.starts_with("aten::div_.");
      const bool inverts = name == "aten::reciprocal" || name == "aten::reciprocal_";
      if (!divides && !inverts) continue;
      if (Argument& by = call.arguments[divides ? 1 : 0]; by == Argument(divisor)) by = count;
    }
  }
  Argument& argument(Call& call, std::string_view name) const {
    return const_cast<Argument&>(*find_argument(graph_, call, name));
  }

  OperatorGraph with_added_calls() {
    std::vector<Call> calls;
    std::vector<CallId> place(graph_.calls.size());  // new ids of old calls
    const auto add = [&](std::map<CallId, std::vector<Call>>& added, CallId at) {
      if (const auto found = added.find(at); found != added.end())
        for (Call& call : found->second) calls.push_back(std::move(call));
    };
    for (size_t i = 0; i < graph_.calls.size(); ++i) {
      add(before_, CallId(i));
      place[i] = CallId(calls.size());
      calls.push_back(std::move(graph_.calls[i]));
      add(after_, CallId(i));
    }
    for (Call& call : calls)
      if (call.forward.valid()) call.forward = place[call.forward.index()];
    find_producers(graph_.tensors, calls);
    graph_.calls = std::move(calls);
    return std::move(graph_);
  }

  OperatorGraph graph_;
  const int64_t samples_;
  std::map<CallId, std::vector<Call>> before_, after_;
};

}  // namespace

OperatorGraph divide_by_batch_counts(OperatorGraph graph, const std::vector<BatchCount>& counts, int64_t samples) {
  if (counts.empty()) return graph;
  return Divider(std::move(graph), samples).run(counts);
}

}  // namespace piper
