// The operator that runs a compiled kernel:
//   piper::run_kernel(Tensor[] inputs, int kernel) -> Tensor[]
// It writes to those inputs that the calls it was made of write to.
#pragma once

#include <cstdint>
#include <string>

namespace piper {

/// Loads a library that AOTInductor made, for good. Gives the number by which the operator knows it. Throws what
/// libtorch throws. `device`: cpu or cuda.
int64_t load_kernel(const std::string& library, const std::string& device);

/// Whoever calls it is linked with the operator.
void provide_run_kernel();

}  // namespace piper
