// The libtorch that this program was built with.
#pragma once

#include <torch/version.h>

namespace piper {

constexpr const char* libtorch_version = TORCH_VERSION;

}  // namespace piper
