#include "kernels/run_kernel.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>
#include <torch/library.h>

#include <mutex>
#include <shared_mutex>

namespace piper {
namespace {

using Runner = torch::inductor::AOTIModelContainerRunner;

/// All of this process, by number.
class LoadedKernels {
 public:
  int64_t add(std::unique_ptr<Runner> runner) {
    const std::unique_lock lock(mutex_);
    runners_.push_back(std::move(runner));
    return static_cast<int64_t>(runners_.size()) - 1;
  }
  Runner& operator[](int64_t kernel) {
    const std::shared_lock lock(mutex_);
    return *runners_.at(static_cast<size_t>(kernel));
  }

 private:
  std::shared_mutex mutex_;
  std::vector<std::unique_ptr<Runner>> runners_;
};

LoadedKernels& loaded_kernels() {
  static auto* const kernels = new LoadedKernels;  // devices may run until the process ends
  return *kernels;
}

/// A kernel has no state, so any number of threads may run it at once. `single threaded` spares the lock and, on a GPU,
/// the wait for the kernel's last run.
std::unique_ptr<Runner> open(const std::string& library, const std::string& device) {
  constexpr bool single_threaded = true;
  if (device == "cpu")
    return std::make_unique<torch::inductor::AOTIModelContainerRunnerCpu>(library, 1, single_threaded);
  return torch::inductor::getAOTIModelRunnerRegistry().at(device)(library, 1, device, "", single_threaded);
}

/// Throws what operators throw.
std::vector<at::Tensor> run_kernel(const std::vector<at::Tensor>& inputs, int64_t kernel) try {
  return loaded_kernels()[kernel].run(inputs);
} catch (const c10::Error&) {
  throw;
} catch (const std::exception& problem) {
  TORCH_CHECK(false, problem.what());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(piper, m) {
  m.def("run_kernel(Tensor[] inputs, int kernel) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(piper, CompositeExplicitAutograd, m) {
  m.impl("run_kernel", [](at::TensorList inputs, int64_t kernel) { return run_kernel(inputs.vec(), kernel); });
}

void provide_run_kernel() {}

int64_t load_kernel(const std::string& library, const std::string& device) {
  return loaded_kernels().add(open(library, device));
}

}  // namespace piper
