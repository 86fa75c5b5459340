// Tensors as the address sanitizer wants them.
#pragma once

namespace piper {

/// In builds with the address sanitizer: from now on every tensor on the CPU is one malloc and one free, whatever
/// libtorch would do (keep, round, pool), so that a use after its end is seen. Does nothing in other builds.
void show_tensors_to_sanitizer();

}  // namespace piper
