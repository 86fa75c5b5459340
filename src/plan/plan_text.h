// The text form of plans: parse(print(p)) == p. Grammar: docs/plan.md.
#pragma once

#include <string>

#include "base/result.h"
#include "plan/plan.h"

namespace piper {

std::string print(const Plan& plan);
/// One device only: its template with the peers of every communication.
std::string print_device(const Plan& plan, int device);

/// Reads the form; `verify` says whether the plan is sound.
Result<Plan> parse_plan(const SourceFilePtr& file);

}  // namespace piper
