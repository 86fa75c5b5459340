// Where a GPU adds up gradients.
#pragma once

#include "capture/pass_body.h"

namespace piper {

/// A gradient that is a product of narrow matrices is added to its wide accumulator by the product itself: it is never
/// stored by itself, nor rounded.
///   before:  g = mm(a, b); add_(sum, t(t(g)))        after:  addmm(sum, a, b, out=sum)
PassBody accumulate_in_products(PassBody body, const OperatorGraph& graph);

}  // namespace piper
