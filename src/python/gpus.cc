// GPUs that trainers use.
#include <torch/csrc/utils/pybind.h>

#include "python/bind.h"
#include "python/errors.h"
#include "python/processes.h"
#include "train/devices/use_gpu.h"

namespace piper::python {

namespace py = pybind11;

void bind_gpus(py::module_& module) {
  py::class_<Processor, std::shared_ptr<Processor>>(module, "Gpu")
      .def_static(
          "use",
          [](int gpu, bool deterministic, const std::string& graphs, bool together, double timeout) {
            return std::shared_ptr<Processor>(unwrap(use_gpu({.deterministic = deterministic,
                                                              .graphs = graphs_named(graphs),
                                                              .gpu = gpu,
                                                              .world = together ? processes().get() : nullptr,
                                                              .timeout = timeouts_of(timeout)})));
          },
          py::call_guard<py::gil_scoped_release>());
}

}  // namespace piper::python
