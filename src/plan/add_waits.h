// The waits a template needs: for data, for order, and for memory that another stream used last.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace piper {

/// Fills `waits` of all operations; `required` lists, by operation, what it must wait for besides its buffers. Waits
/// that others already imply are left out.
void add_waits(const Plan& plan, PlanTemplate& of, const Table<OpId, std::vector<OpId>>& required);

}  // namespace piper
