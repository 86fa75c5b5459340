// The training data of the reference decoder: computed, never read. No libtorch.
#pragma once

#include <cstdint>
#include <span>

namespace piper {

/// One sample of a step: `row` of `batch`. The tokens are all but the last number, the targets all but the first.
void reference_tokens(int64_t step, int64_t batch, int64_t row, int64_t vocabulary,
                      std::span<int64_t> row_of_sequence_plus_1);

}  // namespace piper
