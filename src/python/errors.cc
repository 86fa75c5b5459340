#include "python/errors.h"

#include "comm/communicator.h"
#include "runtime/stream/failure.h"
#include "train/run_problems.h"

namespace piper::python {
namespace {

namespace py = pybind11;

/// Operators by their names in Python.
std::string in_python(std::string text) {
  constexpr std::string_view cpp = "torch::";
  for (size_t at = text.find(cpp); at != std::string::npos; at = text.find(cpp, at))
    text.replace(at, cpp.size(), "torch.");
  return text;
}

void set_error(Diagnostic problem) {
  for (std::string& help : problem.helps) help = in_python(std::move(help));
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
    } catch (const CommunicationError& problem) {  // between steps
      const bool elsewhere = dynamic_cast<const JobStopped*>(&problem) != nullptr;
      set_error(as_diagnostic({elsewhere ? RunProblem::Elsewhere : RunProblem::Stalled, problem.what()}));
    }
  });
}

}  // namespace piper::python
