#include "python/errors.h"

#include <regex>

#include "comm/communicator.h"
#include "runtime/stream/failure.h"
#include "train/run_problems.h"

namespace piper::python {
namespace {

namespace py = pybind11;

/// What the program's options, the sections of its configurations and C++ are called in Python.
std::string in_python(std::string text) {
  static const std::pair<std::regex, const char*> words[] = {
      // in this order
      {std::regex("torch::"), "torch."},
      {std::regex(R"(batch = (\d+) in the model's \[step\], or --batch \d+)"),
       "batch=$1 in piper.capture or piper.load_model"},
      {std::regex(R"(set clip in \[optimizer\], or on_nan = "skip" in \[run\])"),
       R"(or give the trainer clip=1.0 or on_nan="skip")"},
      {std::regex(R"(--(\w+) (\w+) \(in Python: [^)]*\))"), R"($1="$2")"},
      {std::regex("--backend local"), R"(backend="local")"},
      {std::regex("without --backend"), R"(with backend="local")"},
      {std::regex("piper compile MODEL SCHEDULE --emit dag"), "plan.dag()"},
      {std::regex("piper schedule (\\S+) --ranks P --microbatches M, or piper compile --emit schedule"),
       R"(piper.schedules.timeline("$1", ranks=P, microbatches=M), or piper.compile(…).schedule())"},
      {std::regex("piper check --checkpoint"), "piper check, told of checkpoints,"},
      {std::regex("--emit schedule"), "plan.schedule()"},
      {std::regex("--batch (\\d+)"), "batch=$1"},
      {std::regex("--devices (\\d+)"), "devices=$1"},
      {std::regex("--devices"), "devices"},
      {std::regex("--memory (\\w+)"), R"(memory="$1")"},
      {std::regex("--fix:"), "fix:"},
      {std::regex("--try compares"), "tried=[…] compares"},
      {std::regex(R"(accumulate in \[step\])"), "accumulate=n"},
      {std::regex("--group g"), "group=g"},
      {std::regex("--(timeout|costs)"), "$1=…"},
  };
  for (const auto& [program, python] : words) text = std::regex_replace(text, program, python);
  return text;
}

void set_error(Diagnostic problem) {
  problem.message = in_python(std::move(problem.message));
  for (std::string& help : problem.helps) help = in_python(std::move(help));
  const py::object made = py::module_::import("piper.errors").attr("_make")(render(problem), render_json(problem));
  PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
}

}  // namespace

void bind_errors(py::module_& module) {
  module.def("in_python", &in_python);
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
