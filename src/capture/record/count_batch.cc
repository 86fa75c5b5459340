#include <ATen/ATen.h>

#include <map>
#include <set>

#include "base/invariant.h"
#include "base/overloaded.h"
#include "capture/record/batch_counts.h"

namespace piper {
namespace {

using ByTensor = std::map<TensorId, at::Tensor>;

/// Adds up, over the batch, what slices of the size of the recording have.
class BatchCounter {
 public:
  explicit BatchCounter(const Recording& recording) : graph_(recording.graph), table_(recording.table) {}

  std::vector<TensorId> inputs_of(const std::vector<BatchCount>& counts) const {
    std::set<TensorId> out;
    const auto add = [&](const Computable& what) { out.insert(what.inputs.begin(), what.inputs.end()); };
    for (const BatchCount& count : counts)
      std::visit(overloaded{[&](const CountedLabels& labels) { add(labels.labels); },
                            [&](const CountedDivisor& divisor) {
                              for (const Computable& total : divisor.totals) add(total);
                            }},
                 count.what);
    return {out.begin(), out.end()};
  }
  void add_slice(const BatchCount& count, const ByTensor& inputs, ByTensor& sums) const {
    std::visit(overloaded{[&](const CountedLabels& labels) { add(sums, labels.labels.tensor, sum(labels, inputs)); },
                          [&](const CountedDivisor& divisor) {
                            for (const Computable& total : divisor.totals)
                              add(sums, total.tensor, compute(graph_, table_, total, inputs));
                          }},
               count.what);
  }
  /// From the sums over so many slices.
  double of_batch(const BatchCount& count, ByTensor sums, int64_t slices) const {
    if (const auto* labels = std::get_if<CountedLabels>(&count.what))
      return sums.at(labels->labels.tensor).item<double>();
    const auto& divisor = std::get<CountedDivisor>(count.what);
    for (const Computable& total : divisor.totals) {
      at::Tensor& sum = sums.at(total.tensor);
      if (graph_[graph_[total.calls.back()].op].name.starts_with("aten::mean")) sum = sum / slices;
      sum = sum.to(static_cast<c10::ScalarType>(graph_[total.tensor].layout.element), false, /*copy=*/true);
    }
    return compute(graph_, table_, divisor.divisor, sums).item<double>();
  }

 private:
  static void add(ByTensor& sums, TensorId id, const at::Tensor& number) {
    at::Tensor& sum = sums[id];
    const at::Tensor wide = number.to(number.is_floating_point() ? at::kDouble : at::kLong);
    sum = sum.defined() ? sum + wide : wide;  // not in place: totals are copied
  }
  at::Tensor sum(const CountedLabels& counted, const ByTensor& inputs) const {
    const at::Tensor labels = compute(graph_, table_, counted.labels, inputs).flatten();
    const at::Tensor kept = labels.ne(counted.left_out);
    if (!counted.weights) return kept.sum();
    const at::Tensor weights = compute(graph_, table_, *counted.weights, {}).to(at::kDouble);
    return weights.index_select(0, labels.masked_fill(kept.logical_not(), 0)).mul(kept).sum();
  }

  const OperatorGraph& graph_;
  const OperatorTable& table_;
};

}  // namespace

void add_batch(const Recording& recording, const std::vector<BatchCount>& counts, int64_t samples, int64_t batch,
               const FillInput& fill, CountTotals& totals) {
  invariant(batch % samples == 0, "slices have equal numbers of samples");
  const at::NoGradGuard no_grad;
  const BatchCounter counter(recording);
  const std::vector<TensorId> needed = counter.inputs_of(counts);
  totals.sums.resize(counts.size());
  for (int64_t first = 0; first < batch; first += samples, ++totals.slices) {
    ByTensor inputs;
    for (const TensorId input : needed) {
      at::Tensor& tensor = inputs[input] = empty_tensor(recording.graph[input].layout, c10::kCPU);
      fill(recording.graph[input].name, first, tensor);
    }
    for (size_t c = 0; c < counts.size(); ++c) counter.add_slice(counts[c], inputs, totals.sums[c]);
  }
}

std::vector<double> count_totals(const Recording& recording, const std::vector<BatchCount>& counts,
                                 const CountTotals& totals) {
  const at::NoGradGuard no_grad;
  const BatchCounter counter(recording);
  std::vector<double> out;
  for (size_t c = 0; c < counts.size(); ++c) out.push_back(counter.of_batch(counts[c], totals.sums[c], totals.slices));
  return out;
}

std::vector<double> count_batch(const Recording& recording, const std::vector<BatchCount>& counts, int64_t samples,
                                int64_t batch, const FillInput& fill) {
  CountTotals totals;
  add_batch(recording, counts, samples, batch, fill, totals);
  return count_totals(recording, counts, totals);
}

double count_of_slice(const BatchCount& count, double of_batch, int64_t samples, int64_t batch) {
  const auto* divisor = std::get_if<CountedDivisor>(&count.what);
  if (divisor && !divisor->grows) return of_batch;
  return of_batch * static_cast<double>(samples) / static_cast<double>(batch);
}

}  // namespace piper
