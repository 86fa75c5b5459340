// How much a pass computes and moves.
#pragma once

#include "capture/chunk/chunk_ir.h"

namespace piper {

/// Floating-point operations of matrix products and attention; the rest moves bytes rather than computes.
int64_t count_flops(const OperatorGraph& graph, const ChunkIr& body);

/// Bytes of all arguments and results of calls that are not views.
int64_t count_moved_bytes(const ChunkIr& body);

}  // namespace piper
