// Products of linear layers in float8, as torchao's recipe "rowwise" computes them.
#pragma once

#include "base/result.h"
#include "capture/chunk/chunk_ir.h"
#include "capture/program/tried_calls.h"

namespace piper {

/// Both operands of such a product are rounded to e4m3, forward and backward. Each row of the first and column of the
/// second has a scale: the least power of two with which its greatest element can be written.
///   before:  y = mm(x, t(w))
///   after:   q, s = quantised(x); r, u = quantised(t(w)); y = _scaled_mm(q, r, s, u)            GPU, bfloat16
///            q, s = quantised(x); r, u = quantised(t(w)); y = mm(q * s, r * u)                  elsewhere
/// where quantised(x) is operators of ATen: amax, log2, exp2, clamp, _to_copy, ….
/// E320: sizes that a GPU cannot multiply; everywhere, so that what runs on one device runs on the others.
Result<ChunkIr> multiply_in_float8(ChunkIr body, const OperatorGraph& graph, const std::set<StorageId>& matrices,
                                   const std::string& chunk, Pass pass, c10::Device device);

/// E320: the GPU, or libtorch, has no such product.
Checked check_multiplies_float8(const ChunkIr& body, const OperatorGraph& graph, const OperatorTable& table,
                                const std::string& chunk, TriedCalls& tried);

}  // namespace piper
