// Losses that are means over what is counted: tokens that are not padding, elements of a mask.
//
// The mean of a batch is then not the mean of the means of its slices, because slices count differently. What is
// counted depends on the inputs alone, so the count of the whole batch is known before a step begins: it comes to every
// slice as a further input, and is what the loss divides by.
//   before:  loss, _ = nll_loss(l, t, mean)
//   after:   c = mean(loss.count.0); s, _ = nll_loss(l, t, sum); loss = s / c
//   before:  n = sum(mask); loss = s / n        after:  c = mean(loss.count.0); loss = s / c
// Where slices have equal numbers of samples, the mean of their losses is that of the batch if c is its count divided
// by the number of slices.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "capture/record/computable.h"
#include "capture/record/recorder.h"

namespace piper {

/// Labels that a loss does not leave out, each with the weight of its class if there are weights.
struct CountedLabels {
  CallId loss;
  Computable labels;
  std::optional<Computable> weights;
  int64_t left_out = 0;
};

/// A number by which something is divided: a function of sums and means over the slice.
struct CountedDivisor {
  CallId division;                 // the first by it
  std::vector<Computable> totals;  // the sums and means
  Computable divisor;              // from them
  bool grows = true;               // with the samples
};

struct BatchCount {
  std::string input;   // by which it comes: [samples], all the same number
  int8_t element = 0;  // its c10::ScalarType
  std::variant<CountedLabels, CountedDivisor> what;
  bool in_loss = true;  // otherwise in metrics only
};

/// An operator that makes the loss depend on how the batch is cut.
struct SliceDependence {
  std::string op;
  std::string scope;
};

struct BatchCounts {
  std::vector<BatchCount> counts;
  std::vector<SliceDependence> uncounted;  // divisions of which it is not known what they count
  bool whole_loss = false;                 // nothing is in the loss but what is divided by one of them
};

/// In a recorded step. `declared`: only the last division counts, somebody has said so.
BatchCounts find_batch_counts(const OperatorGraph& graph, bool declared);

/// The loss with counts as inputs, for slices of so many samples.
OperatorGraph divide_by_batch_counts(OperatorGraph graph, const std::vector<BatchCount>& counts, int64_t samples);

/// Fills a tensor with the samples of an input from `first_sample` on.
using FillInput = std::function<void(std::string_view input, int64_t first_sample, at::Tensor& into)>;

/// Sums and means over slices, of which counts are made.
struct CountTotals {
  std::vector<std::map<TensorId, at::Tensor>> sums;  // for each count
  int64_t slices = 0;
};

/// Adds those of a batch. `samples`: of the recording.
void add_batch(const Recording& recording, const std::vector<BatchCount>& counts, int64_t samples, int64_t batch,
               const FillInput& fill, CountTotals& totals);
/// What the loss of all that was added, as one batch, divides by, for each count.
std::vector<double> count_totals(const Recording& recording, const std::vector<BatchCount>& counts,
                                 const CountTotals& totals);
/// The same of one batch.
std::vector<double> count_batch(const Recording& recording, const std::vector<BatchCount>& counts, int64_t samples,
                                int64_t batch, const FillInput& fill);

/// The number that a slice of so many samples gets for a batch with this count.
double count_of_slice(const BatchCount& count, double of_batch, int64_t samples, int64_t batch);

}  // namespace piper
