// Before the first product: which kernels the BLAS of PyTorch's wheels for Arm (NVPL) uses where there are no vectors
// of scalable length (SVE).
#include <sys/auxv.h>

#include <cstdlib>

// NVPL 0.3 takes a Neoverse V1 for one with SVE. Where the system hides SVE, as some virtual machines do, its first
// product never ends. Kernel 1, for vectors of 128 bits, is what it uses itself on every other CPU without SVE.
// It reads the variable when it first computes; what the user has set stays. cmake/libtorch.cmake names this function,
// so that it is in every program with libtorch.
extern "C" [[gnu::constructor]] void piper_blas_without_sve() {
#if defined(__aarch64__)
  constexpr unsigned long sve = 1UL << 22;  // HWCAP_SVE
  if (!(getauxval(AT_HWCAP) & sve)) setenv("NVPL_BLAS_DEBUG_CPU_TYPE", "1", /*overwrite=*/0);
#endif
}
