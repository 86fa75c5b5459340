// How much a pass computes and moves, call by call.
#pragma once

#include "capture/chunk/chunk_ir.h"
#include "model/operator_work.h"

namespace piper {

struct CountedWork {
  std::vector<MatrixProduct> products;  // matrix products and those of attention
  int64_t moved = 0;                    // bytes of all arguments and results of calls that are not views
  int64_t streamed = 0;                 // of those that are no products
  int64_t kernels = 0;                  // calls that are not views

  /// Floating-point operations of the products; the rest moves bytes rather than computes.
  int64_t flops() const;
};
/// `linear`: by call, whether it is a product of a linear layer; empty: none is.
CountedWork count_work(const OperatorGraph& graph, const ChunkIr& body, const std::vector<char>& linear = {});

}  // namespace piper
