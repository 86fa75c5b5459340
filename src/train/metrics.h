// What happened in each step, for tools: one JSON object a line. All fields: docs/training.md.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "base/result.h"
#include "train/data/named_file.h"

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
};

/// Every further line.
struct StepMetrics {
  int64_t step = 0;  // from 0
  double loss = 0;
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  double seconds = 0;
  int64_t tokens = 0;    // of the step, on all devices together
  bool skipped = false;  // loss or gradients were not finite, and the weights stayed as they were

  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

/// As lines of the file, with their ends. Numbers that are not finite are null.
std::string print_json(const RunDescription& run);
std::string print_json(const StepMetrics& step);

/// Every line is on its way to the disk when the call returns: whoever follows the file sees it, and a run that ends
/// badly leaves all its steps.
class MetricsFile {
 public:
  /// After the metrics of earlier runs, if there are any. E108: it cannot be written, or has something else in it.
  static Result<MetricsFile> create(NamedFile file, const RunDescription& run);
  /// E108: it cannot be written any more, for example because the disk is full.
  Checked add(const StepMetrics& step);

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
