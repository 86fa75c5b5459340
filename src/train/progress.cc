#include "train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace piper {
namespace {

constexpr double seconds_between_changes = 0.1;
constexpr double seconds_between_lines = 5;
constexpr double weight_of_last_step = 0.1;  // in the mean of how long a step takes

}  // namespace

ProgressStyle progress_style(std::FILE* out) {
  return ::isatty(::fileno(out)) ? ProgressStyle::Overwrite : ProgressStyle::Lines;
}

void ProgressLine::show(const StepMetrics& step, double now) {
  if (!last_)
    seconds_per_step_ = step.seconds;
  else if (last_->step == 0)  // the first step takes longer than all others
    seconds_per_step_ = now - last_now_;
  else
    seconds_per_step_ += weight_of_last_step * (now - last_now_ - seconds_per_step_);
  last_ = step;
  last_now_ = now;
  unprinted_ = true;
  const double pause = style_ == ProgressStyle::Overwrite ? seconds_between_changes : seconds_between_lines;
  if (printed_ && now - *printed_ < pause && step.step + 1 < steps_) return;
  printed_ = now;
  print();
}

void ProgressLine::finish() {
  if (unprinted_) print();
  if (line_open_) std::fputc('\n', out_);
  line_open_ = false;
  std::fflush(out_);
}

void ProgressLine::print() {
  std::string line = text(*last_);
  if (style_ == ProgressStyle::Overwrite) {
    line.resize(std::min(line.size(), static_cast<size_t>(std::max(columns_ - 1, 1))));
    line = "\r" + line + "\x1b[K";  // and nothing of a longer line before it
  } else {
    line += '\n';
  }
  std::fputs(line.c_str(), out_);
  std::fflush(out_);
  line_open_ = style_ == ProgressStyle::Overwrite;
  unprinted_ = false;
}

std::string ProgressLine::text(const StepMetrics& step) const {
  const int64_t left = std::max<int64_t>(0, steps_ - step.step - 1);
  const double speed = seconds_per_step_ > 0 ? static_cast<double>(step.tokens) / seconds_per_step_ : 0;
  std::string named;
  for (const NamedScalar& of : step.reported.named) named += fmt::format("  {} {:.4g}", of.name, of.value);
  return fmt::format("step {:>{}}/{}  loss {:.4f}  {}rate {:.2e}  {} tokens/s  {}{}{}", step.step + 1,
                     fmt::formatted_size("{}", steps_), steps_, step.loss,
                     step.updates ? fmt::format("norm {:.3g}  ", step.gradient_norm) : "", step.learning_rate,
                     short_count(speed),
                     left > 0 ? time_left_text(static_cast<double>(left) * seconds_per_step_) + " left" : "done",
                     step.skipped ? "  skipped" : "", named);
}

std::string time_left_text(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e12)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {:02} h", s / 86400, s / 3600 % 24);
}

std::string short_count(double count) {
  constexpr std::string_view units[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  while (std::abs(count) >= 999.5 && unit + 1 < std::size(units)) count /= 1000, ++unit;
  const int digits = unit == 0 || std::abs(count) >= 99.95 ? 0 : std::abs(count) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", count, digits, units[unit]);
}

}  // namespace piper
