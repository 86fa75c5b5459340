// What happened in each step, for tools: one JSON object a line. All fields: docs/training.md.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/data/named_file.h"
#include "train/tensorboard.h"

namespace piper {

/// The first line of a run.
struct RunDescription {
  std::string model;
  std::string schedule;   // its file; empty: one device
  std::string plan_hash;  // of the plan, as `piper check` prints it
  int64_t parameters = 0;
  int64_t devices = 1;
  int64_t batch = 1;
  int64_t sequence = 1;
  int64_t steps = 0;
  uint64_t seed = 0;
  std::string data = {};                         // what it consists of
  std::optional<double> predicted_seconds = {};  // of a step; none: nothing is known about the devices
};

/// What a model reports besides its loss: means over the batch.
struct ReportedMetrics {
  std::vector<NamedScalar> named = {};
  /// Of every mixture, if it is asked for (`expert_load`): the part of all choices of each expert. `named` says then
  /// how unevenly the worst layer uses its experts: expert_load_max, the greatest over the mean, and
  /// expert_load_entropy, 1 if all are used evenly.
  std::vector<std::vector<double>> expert_load = {};
};
ReportedMetrics reported_metrics(const std::vector<std::string>& names, const std::vector<double>& values);

/// Every further line.
struct StepMetrics {
  int64_t step = 0;  // from 0
  double loss = 0;
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  double seconds = 0;
  int64_t tokens = 0;              // of the step, on all devices together
  bool updates = true;             // the weights; otherwise its gradients are added to those of the next step
  bool skipped = false;            // loss or gradients were not finite, and the weights stayed as they were
  std::optional<double> mfu = {};  // share of the devices' peak; none: that is not known
  std::optional<double> predicted_seconds = {};  // none: nothing is known about the devices
  double data_seconds = 0;                       // spent on reading samples, by all devices of this process together
  int64_t peak_bytes = 0;                        // memory of the fullest device of this process, since the run began
  ReportedMetrics reported = {};

  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

/// A prompt, and what the model writes after it.
struct WrittenText {
  std::string prompt, text;
};

/// A line after the steps before an evaluation.
struct EvaluationMetrics {
  int64_t steps = 0;  // taken before
  double loss = 0;    // mean over all batches
  double perplexity = 0;
  int64_t batches = 0;
  int64_t tokens = 0;
  double seconds = 0;
  ReportedMetrics reported = {};
  std::vector<WrittenText> samples = {};
};

/// As lines of the file, with their ends. Numbers that are not finite are null.
std::string print_json(const RunDescription& run);
std::string print_json(const StepMetrics& step);
std::string print_json(const EvaluationMetrics& evaluation);
/// `evaluation after 100 steps: loss 2.3456, perplexity 10.44 (8 batches)`, and a line for every sample, for people.
std::string print_line(const EvaluationMetrics& evaluation);
/// The numbers of a step, or of an evaluation, by name, for TensorBoard: what is not known is left out.
std::vector<NamedScalar> scalars_of(const StepMetrics& step);
std::vector<NamedScalar> scalars_of(const EvaluationMetrics& evaluation);
/// Every line is on its way to the disk when the call returns: whoever follows the file sees it, and a run that ends
/// badly leaves all its steps.
class MetricsFile {
 public:
  /// After the metrics of earlier runs, if there are any. E108: it cannot be written, or has something else in it.
  static Result<MetricsFile> create(NamedFile file, const RunDescription& run);
  /// E108: it cannot be written any more, for example because the disk is full.
  Checked add(const StepMetrics& step);
  Checked add(const EvaluationMetrics& evaluation);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  explicit MetricsFile(NamedFile file) : name_(std::move(file)) {}
  Checked write(const std::string& line);

  NamedFile name_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace piper
