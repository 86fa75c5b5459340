// A schedule compiled, proved and simulated: what it costs, exactly.
#pragma once

#include "plan/memory_report.h"
#include "search/problem.h"
#include "sim/step_report.h"

namespace piper {

struct Evaluated {
  std::optional<Candidate> candidate;  // none: the user's own schedule
  std::string name;                    // of the user's own
  Schedule schedule;
  StepReport report;
  MemoryPeak memory;                // of the device that is fullest
  std::optional<int64_t> capacity;  // of that device
  bool fits = true;                 // on every device
  size_t nodes = 0;                 // of the step
};

/// Refused where the compiler refuses it for another reason than memory.
Result<Evaluated> evaluate(const Problem& problem, const Candidate& candidate);
/// The same of a schedule of any origin. E207: it is for another number of devices.
Result<Evaluated> evaluate(const Problem& problem, const std::string& name, const Schedule& schedule);

/// The same outside of a search. A schedule for more devices than the cluster has is refused (E205).
Result<Evaluated> evaluate(const std::shared_ptr<const ModelGraph>& model, const Schedule& schedule,
                           const Cluster& cluster, const std::optional<CostTable>& costs);

/// Order of preference: what fits comes first, then the faster, then what needs less memory.
bool better(const Evaluated& a, const Evaluated& b);

}  // namespace piper
