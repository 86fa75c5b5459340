// Indices of something of which each device has a part.
#pragma once

#include <ATen/core/Tensor.h>

namespace piper {

/// Indices counted from the first of the part, and which of them are in another one.
struct InPart {
  InPart(const at::Tensor& indices, int64_t first, int64_t size)
      : here(indices.sub(first)), elsewhere(here.lt(0).logical_or_(here.ge(size))) {}
  at::Tensor here, elsewhere;
  at::Tensor or_else(int64_t index) { return here.masked_fill_(elsewhere, index); }
};

}  // namespace piper
