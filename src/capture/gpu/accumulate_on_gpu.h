// How a GPU adds up gradients: with fewer passes over memory, and fewer kernels, than one sum for each of them.
#pragma once

#include "capture/chunk/chunk_ir.h"

namespace piper {

/// A gradient that is a product of narrow matrices is added to its wide accumulator by the product itself: it is never
/// stored by itself, nor rounded. So is one that is a sum of rows (a bias), whatever its type, by an operator of
/// Piper's.
///   before:  g = mm(a, b); add_(sum, t(t(g)))        after:  addmm(sum, a, b, out=sum)
///   before:  g = sum(a, dim=0); add_(sum, view(g))   after:  add_sum_of_rows(sum, a)
///   before:  h, g = logits_in_blocks_backward(…); add_(sum, g)   after:  h = logits_in_blocks_backward_add(sum, …)
ChunkIr accumulate_where_computed(ChunkIr body, const OperatorGraph& graph);

/// The same for what autograd adds up along the way, where nobody needs the first summand any more.
///   before:  x = …; y = mm(a, b); r = add(view(x), view(y))        after:  x = …; addmm_(x, a, b); r is view(x)
ChunkIr add_in_products(ChunkIr body, const OperatorGraph& graph);

/// Small gradients are added at the end, all by one operator of Piper's. The same bits.
///   before:  add_(sum1, g1); …; add_(sum2, g2); …        after:  …; add_to_each([sum1, sum2], [g1, g2])
ChunkIr accumulate_together(ChunkIr body, const OperatorGraph& graph);

}  // namespace piper
