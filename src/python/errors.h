// Diagnostics as Python exceptions: piper.Error, with code, place, notes and help, printed as the program prints them.
#pragma once

#include <pybind11/pybind11.h>

#include "python/raised.h"

namespace piper::python {

void bind_errors(pybind11::module_& module);

}  // namespace piper::python
