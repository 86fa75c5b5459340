// How much memory every device needs, exactly: the peak by category, where it is, and who owns it.
#pragma once

#include <array>

#include "base/result.h"
#include "cost/cluster.h"
#include "plan/plan.h"

namespace piper {

struct MemoryOwner {
  std::string name;  // a name of the plan with its category
  int64_t bytes = 0;
  int buffers = 0;
};

struct MemoryPeak {
  int64_t total = 0;
  std::array<int64_t, category_count> by_category{};
  OpId op;                           // at the peak
  std::vector<MemoryOwner> largest;  // at most eight, largest first
};

MemoryPeak memory_peak(const Plan& plan, const PlanTemplate& of);

/// A table of all templates for people, and the largest owners where the highest peak is.
std::string memory_table(const Plan& plan);

/// Every device's peak fits into the memory of its kind, where that is known; otherwise E405 names the device that
/// exceeds it most, with its largest owners.
Checked check_capacity(const Plan& plan, const Cluster& cluster);

}  // namespace piper
