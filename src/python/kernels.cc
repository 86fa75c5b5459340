// What compiles the chunks of a model.
#include "kernels/kernel_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "python/bind.h"
#include "train/devices/use_gpu.h"

namespace py = pybind11;

namespace piper::python {

void bind_kernels(py::module_& module) {
  py::class_<KernelStore, std::shared_ptr<KernelStore>>(module, "KernelStore")
      .def(py::init([](const std::string& python, const std::string& cache) {
        KernelOptions options;
        if (!cache.empty()) options.cache = cache;
        options.compiler = {python, static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
        options.gpu = gpu_architecture();
        options.say = [](const std::string& line) { fmt::print(stderr, "piper: {}\n", line); };
        return std::make_shared<KernelStore>(std::move(options));
      }))
      .def_property_readonly("count", [](const KernelStore& of) {
        const KernelCount count = of.count();
        return py::make_tuple(count.kernels, count.compiled, count.failed);
      });
}

}  // namespace piper::python
