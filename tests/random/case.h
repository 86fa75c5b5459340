// A way to train a small model, as a user writes it: a configuration and a schedule, line by line. All numbers are
// float64, whatever else changes: results are judged by that.
#pragma once

#include <string>
#include <vector>

#include "runtime/device_run.h"

namespace piper::random {

struct Case {
  std::vector<std::string> model, step;  // of [model] and [step]
  std::vector<std::string> directives;
  Issue issue = Issue::Ahead;

  std::string config() const;
  std::string schedule() const;
  /// Both, ready to paste.
  std::string shown() const;
  friend bool operator==(const Case&, const Case&) = default;
};

}  // namespace piper::random
