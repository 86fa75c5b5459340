// Operators that libtorch cannot run on several threads at a time, on this kind of machine: devices that are threads of
// one process take turns with them.
//
// With the Arm Compute Library below oneDNN a depthwise convolution keeps its packed weights and bias with the kernel,
// and calls of equal shapes share the kernel: two at a time mix up their values (libtorch 2.11; of 300 calls on each
// of two threads half are wrong). Other operators are right, and so are these in processes of their own:
// test_threads.py runs all operators on two threads at once, and what it finds on a new kind of machine is added here.
#pragma once

#include <mutex>

#include "capture/chunk/chunk_ir.h"
#include "capture/record/operator_table.h"

namespace piper {

bool runs_one_at_a_time(const c10::OperatorHandle& op, const ChunkIr& body, const Call& call, c10::Device device);

/// Held while such an operator runs.
std::mutex& one_at_a_time();

}  // namespace piper
