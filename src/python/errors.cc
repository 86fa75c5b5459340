#include "python/errors.h"

#include "runtime/stream/failure.h"
#include "train/run_problems.h"

namespace piper::python {
namespace {

namespace py = pybind11;

void set_error(const Diagnostic& problem) {
  const py::object made = py::module_::import("piper.errors").attr("_make")(render(problem), render_json(problem));
  PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
}

}  // namespace

void bind_errors(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Raised& raised) {
      set_error(raised.diagnostic);
    } catch (const RunError& failed) {
      set_error(as_diagnostic(failed));
    }
  });
}

}  // namespace piper::python
