#include "train/loop/accumulated_counts.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace piper {

Result<double> AccumulatedCounts::factor(const std::vector<double>& before, const std::vector<double>& now) const {
  const BatchCounts& counted = captured_.slices().back().counts;
  const auto same = [](double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); };
  std::optional<double> out;
  for (size_t c = 0; c < now.size(); ++c) {
    if (!counted.counts[c].in_loss) continue;
    const double needed = before[c] / now[c];
    if (!same(needed, out.value_or(needed)))
      return error(ErrorCode::E105, {},
                   "steps that make one update count differently, and the loss divides by several counts: their "
                   "gradients cannot be weighed by all of them")
          .help("let one step have the larger batch, in more microbatches, or give batches that count alike");
    out = needed;
  }
  if (!out || counted.whole_loss || same(*out, 1)) return out.value_or(1);
  return error(ErrorCode::E105, {},
               "steps that make one update count differently, and a part of the loss is not divided by what is "
               "counted: their gradients cannot be weighed by it")
      .help("let one step have the larger batch, in more microbatches, or give batches that count alike");
}

StepSettings AccumulatedCounts::weigh_ahead(StepSettings settings) {
  const CapturedSlice& slice = captured_.slices().back();
  const int64_t samples = settings.accumulation.steps * captured_.graph()->step.batch;
  next_ = before_;
  if (settings.accumulation.first())
    next_.counts = count_batch(*slice.recording, slice.counts.counts, slice.samples, samples, settings.fill);
  settings.fill = captured_.with_counts(std::move(settings.fill), next_.counts, samples);
  return settings;
}

Result<StepSettings> AccumulatedCounts::weigh(StepSettings settings) {
  Accumulation& accumulation = settings.accumulation;
  const CapturedSlice& slice = captured_.slices().back();
  const std::vector<BatchCount>& counts = slice.counts.counts;
  if (accumulation.steps == 1 || counts.empty()) {
    settings.fill = captured_.with_batch_counts(std::move(settings.fill));
    return settings;
  }
  if (accumulation.reads_ahead) return weigh_ahead(std::move(settings));
  const int64_t batch = captured_.graph()->step.batch;
  const auto add = [&](CountTotals& to) {
    add_batch(*slice.recording, counts, slice.samples, batch, settings.fill, to);
    return count_totals(*slice.recording, counts, to);
  };
  next_ = accumulation.first() ? Steps() : before_;
  const std::vector<double> before = next_.counts;
  CountTotals own;
  next_.counts = add(own);
  for (size_t c = 0; c < counts.size(); ++c)  // nothing is counted: the step adds nothing, whatever divides it
    if (next_.counts[c] == 0) next_.counts[c] = accumulation.first() ? 1 : before[c];
  const std::vector<double> all = add(next_.totals);
  if (!accumulation.first()) {
    PIPER_TRY(accumulation.rescale, factor(before, next_.counts));
  }
  if (accumulation.last()) {
    std::vector<double> mean;
    for (size_t c = 0; c < counts.size(); ++c) mean.push_back(count_of_slice(counts[c], all[c], 1, accumulation.steps));
    PIPER_TRY(accumulation.excess, factor(mean, next_.counts));
  }
  settings.fill = captured_.with_counts(std::move(settings.fill), next_.counts, batch);
  return settings;
}

}  // namespace piper
