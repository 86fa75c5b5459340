// Changes of one or two lines that make a step faster. Whatever a hint says was compiled, proved and simulated.
#pragma once

#include <functional>

#include "compile/compile.h"
#include "sim/step_report.h"

namespace piper {

/// A schedule as it was simulated.
struct HintedStep {
  const Schedule& schedule;  // as written
  const Compiled& compiled;
  const Cluster& cluster;
  const StepReport& report;
  bool fits = true;
};

/// Compiles and simulates another schedule for the same model and cluster in the same way.
struct TriedStep {
  double seconds = 0;
  bool fits = true;
};
using Trial = std::function<Result<TriedStep>(const Schedule&)>;

struct Hint {
  std::vector<Directive> instead;  // of those with the same verbs
  double seconds = 0;              // of a step with them
  std::string why;
};

/// Another order of the mesh's axes that keeps communication off slow links, and another timeline with less idle time:
/// where they are faster, by more than 1 %, and fit if the schedule does.
std::vector<Hint> hints(const HintedStep& step, const Trial& trial);

}  // namespace piper
