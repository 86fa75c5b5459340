// Bodies that run as compiled kernels.
#pragma once

#include "capture/chunk/chunk_ir.h"
#include "capture/program/tried_calls.h"
#include "capture/record/operator_table.h"
#include "kernels/kernel_store.h"

namespace piper {

/// What the body would have compiled: for `KernelStore::build`, which compiles many at once. `what`: chunk and pass,
/// for people.
std::vector<KernelText> kernel_texts(const ChunkIr& body, const OperatorTable& table, c10::Device device,
                                     const std::string& what, const KernelStore& kernels);

/// The body with a call of a kernel in place of those that one can do. Where there is none, or where it does not give
/// what was recorded, the calls stay.
///   before:  m = mm(x, w); r = relu(m); add_(sum, r); d = bernoulli(…); y = mul(r, d)
///   after:   d = bernoulli(…); y = run_kernel([x, w, sum, d])
ChunkIr call_kernels(ChunkIr body, const OperatorGraph& graph, const OperatorTable& table, const std::string& what,
                     KernelStore& kernels, TriedCalls& tried);

}  // namespace piper
