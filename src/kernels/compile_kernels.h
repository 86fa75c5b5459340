// Processes of Python that compile kernels (compile_kernels.py).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace piper {

struct KernelCompiler {
  std::string python;  // an interpreter that has PyTorch
  int processes = 1;   // at once
};

/// Compiles in every folder the `text` that is there (kernel_cache.h). `finished` hears of each, by its index, from any
/// thread but one at a time: empty, or why there is no kernel.
void compile_kernels(const KernelCompiler& compiler, const std::vector<std::string>& folders,
                     const std::function<void(size_t folder, const std::string& problem)>& finished);

/// Text of compile_kernels.py.
extern const char* const compile_kernels_script;

}  // namespace piper
