// What the kernels of operators give, made what was recorded.
#pragma once

#include "base/result.h"
#include "capture/program/tried_calls.h"

namespace piper {

/// The body with every result as it was recorded: all of a storage, with the recorded strides. Recording has results
/// from rules about shapes, and some kernels give something else: a scalar in a storage of the size of their input,
/// dimensions in another order. There a copy follows, by `piper::lay_out(Tensor given, int[] strides) -> Tensor`.
/// Refused: a kernel that gives other sizes or types than the rule says, or cannot be tried (E609).
Result<ChunkIr> lay_out_results(ChunkIr body, const std::string& chunk, const OperatorGraph& graph,
                                const OperatorTable& table, TriedCalls& tried);

/// A tensor without elements is a constant for whoever uses it, so its call may be in no body: here it is tried too.
Checked check_results_without_elements(const OperatorGraph& graph, const OperatorTable& table, TriedCalls& tried);

/// Whoever calls it is linked with the operator.
void provide_lay_out();

}  // namespace piper
