// Calls that may run on a side stream, concurrently with those that come after them, on a device that can do several at
// once.
#pragma once

#include "capture/chunk/chunk_ir.h"

namespace piper {

/// An operator that computes several gradients as a mask says becomes two calls, where what the pass gives depends on
/// the first only. Most operators of a GPU compute them by kernels of their own anyway.
///   before:  x, w = norm_backward(…, mask=[1, 1])        after:  x, - = norm_backward(…, [1, 0]); -, w = …([0, 1])
ChunkIr compute_apart(ChunkIr body, const OperatorGraph& graph);

/// Marks what nothing depends on that the pass gives: gradients of parameters, in a pass that gives gradients of
/// values. What such calls use, and others too, lives until the pass ends (`last_uses`). None where the pass gives
/// nothing: then there is nothing to run concurrently with.
ChunkIr mark_side_stream(ChunkIr body);

/// By call on a side stream: the last of the others before it that made what it reads, or used what it writes; when
/// that has ended it may begin. -1: none in this pass. Calls without an operator (as_strided_views.h) run nowhere.
std::vector<int> awaited_by_side_stream(const ChunkIr& body);

/// By call on a side stream: on which of so many lanes it runs, so that none waits for another lane: those that touch
/// what one of them makes or writes share one. -1: others, and calls without an operator.
std::vector<int> side_lanes(const ChunkIr& body, size_t lanes);

}  // namespace piper
