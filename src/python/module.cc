// piper._piper: the layers, as the package `piper` uses them. Import torch first: its libraries are the ones used here.
#include "python/bind.h"
#include "python/errors.h"

PYBIND11_MODULE(_piper, module) {
  module.attr("__version__") = PIPER_VERSION;
  piper::python::bind_errors(module);
  piper::python::bind_schedules(module);
  piper::python::bind_models(module);
  piper::python::bind_kernels(module);
  piper::python::bind_plans(module);
  piper::python::bind_searches(module);
  piper::python::bind_gpus(module);
  piper::python::bind_trainers(module);
  piper::python::bind_samples(module);
  piper::python::bind_processes(module);
}
