// Piper's own operators that capture puts into what runs on GPUs.
#pragma once

namespace piper {

/// They are there from now on: `piper::add_to_each`, `piper::add_sum_of_rows`, `piper::draw_`.
void provide_gpu_operators();

}  // namespace piper
