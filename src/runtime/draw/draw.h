// Fills memory of the host with random numbers by their places.
#pragma once

#include <cstdint>

#include "runtime/random/draw_place.h"

namespace piper {

void draw(const Drawing& drawing, DType dtype, void* into, const DrawPlace& place, uint64_t key);

}  // namespace piper
