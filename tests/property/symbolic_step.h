// Runs a step on symbols: the plans of all devices, operation by operation, with (value, samples, experts) instead of
// numbers. Whatever the schedule, every computation must find exactly its inputs and current weights, every parameter
// every contribution of the step exactly once at its update, and every holder the same new weights in the end.
#pragma once

#include <string>
#include <vector>

#include "ir/linear_dag.h"
#include "plan/plan.h"

namespace piper::property {

/// What is wrong with the step; nothing if it computes what one device would. The plan gives order and buffers, the
/// DAG says what each operation means.
std::vector<std::string> run_symbolically(const LinearDag& linear, const Plan& plan);

}  // namespace piper::property
