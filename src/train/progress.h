// One line for whoever waits: step, loss, speed, time left.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

#include "train/metrics.h"

namespace piper {

enum class ProgressStyle {
  Overwrite,  // a terminal: one line that changes in its place
  Lines,      // a file or pipe: a line every few seconds
};
ProgressStyle progress_style(std::FILE* out);

class ProgressLine {
 public:
  /// `columns`: what a line may take on the terminal.
  ProgressLine(std::FILE* out, ProgressStyle style, int64_t steps, int columns = 80)
      : out_(out), style_(style), steps_(steps), columns_(columns) {}
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  /// Finishes: what is said next, such as why a run failed, begins on a line of its own.
  ~ProgressLine() { finish(); }

  /// After each step; `now` in seconds since any moment. Prints the first step, the last one, and in between at a
  /// rate that can be read.
  void show(const StepMetrics& step, double now);
  /// Ends the line; what was not printed yet is. Before any other output, and at the end.
  void finish();

 private:
  std::string text(const StepMetrics& step) const;
  void print();

  std::FILE* out_;
  ProgressStyle style_;
  int64_t steps_;
  int columns_;
  std::optional<StepMetrics> last_;  // seen
  double last_now_ = 0;
  double seconds_per_step_ = 0;    // lately
  std::optional<double> printed_;  // when
  bool unprinted_ = false;
  bool line_open_ = false;
};

/// `8 s`, `3 min 05 s`, `2 h 04 min`, `5 d 03 h`.
std::string time_left_text(double seconds);
/// Three digits that matter: `987`, `12.3k`, `4.56M`.
std::string short_count(double count);

}  // namespace piper
