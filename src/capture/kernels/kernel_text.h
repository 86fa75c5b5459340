// Calls as text: what is compiled, and what a kernel is known by.
//
// One JSON object. Tensors are numbered: inputs first, then results as they are made. Equal calls of different chunks
// have equal texts.
//   {"device": "cpu", "gpu": "", "threads": 1, "deterministic": false,
//    "inputs": [["float32", [8, 16], [16, 1], 0], …],              dtype, sizes, strides, offset
//    "calls": [{"op": "aten::add.Tensor", "arguments": [{"tensor": 0}, {"tensor": 1}, 1], "results": [2]}, …],
//    "outputs": [2]}
// Arguments are as in JSON; or {"tensor"}, {"tensors"}, {"dtype"}, {"device"}, {"layout"}, {"memory_format"}, {"text"},
// {"number"} (inf, nan).
#pragma once

#include <string>

#include "capture/chunk/chunk_ir.h"
#include "capture/kernels/kernel_regions.h"
#include "capture/record/operator_table.h"

namespace piper {

/// All its arguments can be written so.
bool has_kernel_text(const Call& call, const OperatorTable& table);

/// Where a kernel runs.
struct KernelTarget {
  c10::Device device;
  int threads = 1;  // of a device, inside one kernel
  std::string gpu;  // its name and architecture
};

/// Single numbers that the model wrote down are part of the text. What shares a storage with others on a GPU has an
/// offset: nothing is known of its alignment.
std::string kernel_text(const ChunkIr& body, const KernelRegion& region, const OperatorTable& table,
                        const KernelTarget& target);

}  // namespace piper
