// Which calls of a body one kernel can do.
//
// A body becomes levels, in this order: calls that stay as they are, a kernel, calls that stay, a kernel, … Every call
// is on the first level that the calls before it allow, so what stays divides no more than it must; pointwise calls on
// what the body was given are on the last level that those after them allow, so they cost no memory. Views are on no
// level: whoever needs one makes it, from all of the storage. So only whole storages go in and out of a kernel, as they
// do with bodies.
#pragma once

#include <vector>

#include "capture/chunk/chunk_ir.h"
#include "capture/record/operator_table.h"

namespace piper {

struct KernelRegion {
  std::vector<size_t> calls;              // of the body, in its order, with the views that they need
  std::vector<TensorId> inputs, outputs;  // whole storages
  std::vector<TensorId> numbers;          // constants that are part of the kernel
  std::vector<StorageId> writes;          // of inputs
};

struct KernelLevel {
  std::vector<size_t> stays;  // calls, views not among them
  KernelRegion kernel;        // where it is worth one
  bool has_kernel = false;
};

/// Operators of ATen can be part of a kernel, but for those that draw random numbers, take turns with other threads,
/// write to what they are given for it, or know which part of a region a device has; and attention on a GPU, which is a
/// kernel of a library anyway and has results on the host.
std::vector<KernelLevel> kernel_levels(const ChunkIr& body, const OperatorTable& table, c10::Device device);

/// By tensor: the call that makes it as a view, or -1.
std::vector<int> views_of(const ChunkIr& body);

/// Calls f(index) for the views that lead from whole storages to this tensor, in order.
template <class F>
void each_view_to(const ChunkIr& body, const std::vector<int>& views, TensorId id, F f) {
  const int view = views[id.index()];
  if (view < 0) return;
  each_tensor(body.calls[static_cast<size_t>(view)].arguments,
              [&](TensorId argument) { each_view_to(body, views, argument, f); });
  f(static_cast<size_t>(view));
}

}  // namespace piper
