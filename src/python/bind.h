// What the module is made of: one function per noun.
#pragma once

#include <pybind11/pybind11.h>

namespace piper::python {

void bind_schedules(pybind11::module_& module);  // Schedule, Timeline
void bind_models(pybind11::module_& module);     // Model, Scope
void bind_kernels(pybind11::module_& module);    // KernelStore
void bind_plans(pybind11::module_& module);      // Plan, Simulation
void bind_searches(pybind11::module_& module);   // search
void bind_trainers(pybind11::module_& module);   // Trainer
void bind_samples(pybind11::module_& module);    // Samples
void bind_processes(pybind11::module_& module);  // joining others
void bind_gpus(pybind11::module_& module);       // Gpu

}  // namespace piper::python
