// Trainers, as Python sees them.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "python/bind.h"
#include "python/errors.h"
#include "python/trainer.h"
#include "tools/join_mpi.h"
#include "tools/page.h"
#include "trace/chrome.h"
#include "train/loop/measured.h"
#include "train/loop/training.h"

namespace piper::python {
namespace {

namespace py = pybind11;

/// Kind and numbers of the optimiser, in the order in which the package gives them.
using OptimizerNumbers = std::tuple<std::string, double, double, double, double, double, double>;
OptimizerSettings settings_of(const OptimizerNumbers& given, Optimizer planned) {
  OptimizerSettings out;
  std::string kind;
  std::tie(kind, out.learning_rate, out.weight_decay, out.beta1, out.beta2, out.epsilon, out.momentum) = given;
  out.kind = *optimizer_named(kind);
  if (out.kind != planned)
    throw Raised(
        error(ErrorCode::E105, {}, fmt::format("the plan is for {}, the optimiser is {} now", name(planned), kind))
            .help("make a new trainer for another kind of optimiser"));
  return out;
}

/// The processes that the launcher has started; none until a trainer joins them, and after the last.
std::unique_ptr<World>& processes() {
  static std::unique_ptr<World> joined;
  return joined;
}

std::unique_ptr<Trainer> make_trainer(const Plan& plan, Tensors initial, uint64_t seed, std::optional<double> clip,
                                      bool skip_not_finite, double patience, bool together) {
  const py::gil_scoped_release unlocked;
  if (together && !processes()) processes() = unwrap(join_mpi());
  return std::make_unique<Trainer>(plan, std::move(initial), TrainerOptions{seed, clip, skip_not_finite, patience},
                                   together ? processes().get() : nullptr);
}

Kept kept_named(const std::string& name) {
  if (name == "moment1") return Kept::Moment1;
  if (name == "moment2") return Kept::Moment2;
  return name == "master" ? Kept::Master : Kept::Weight;
}

std::optional<at::Tensor> if_defined(at::Tensor tensor) {
  return tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt;
}

Trace trace_of(Trainer& trainer) {
  const StepConfig& step = trainer.plan().trainable->step;
  return measured_trace(trainer.plan().plan(), trainer.flights(), trainer.plan().cluster, step.batch * step.sequence);
}

void bind_steps(py::module_& module) {
  py::class_<Step>(module, "StepResult", "What a step gave.")
      .def_property_readonly(
          "loss", [](const Step& step) { return step.outcome.loss; }, "The mean over the batch.")
      .def_readonly("microbatches", &Step::microbatches, "The loss of every microbatch.")
      .def_property_readonly(
          "gradient_norm", [](const Step& step) { return step.outcome.gradient_norm; },
          "Of all gradients, before clipping.")
      .def_property_readonly(
          "skipped", [](const Step& step) { return step.outcome.skipped; }, "Not finite, so nothing was updated.")
      .def_property_readonly(
          "seconds", [](const Step& step) { return step.outcome.seconds; },
          "From the start of the devices to the end of the last.")
      .def("__float__", [](const Step& step) { return step.outcome.loss; })
      .def("__repr__", [](const Step& step) {
        return fmt::format("StepResult(loss={:.6g}, gradient_norm={:.6g}, skipped={}, seconds={:.6g})",
                           step.outcome.loss, step.outcome.gradient_norm, step.outcome.skipped ? "True" : "False",
                           step.outcome.seconds);
      });
}

}  // namespace

void bind_trainers(py::module_& module) {
  bind_steps(module);
  py::class_<Trainer>(module, "Trainer")
      .def(py::init(&make_trainer))
      .def("step",
           [](Trainer& trainer, const std::vector<at::Tensor>& inputs, const OptimizerNumbers& optimizer) {
             const OptimizerSettings settings = settings_of(optimizer, trainer.plan().trainable->step.optimizer);
             const py::gil_scoped_release unlocked;
             return trainer.step(inputs, settings);
           })
      .def("set_parameters", &Trainer::set_parameters, py::call_guard<py::gil_scoped_release>())
      .def("kept",
           [](Trainer& trainer, const std::string& name, const std::string& kept) {
             const py::gil_scoped_release unlocked;
             return if_defined(trainer.kept(name, kept_named(kept)));
           })
      .def("set_kept",
           [](Trainer& trainer, const std::string& name, const std::string& kept, const at::Tensor& whole) {
             const py::gil_scoped_release unlocked;
             trainer.set_kept(name, kept_named(kept), whole);
           })
      .def("buffer",
           [](Trainer& trainer, const std::string& name, const at::Tensor& like) {
             const py::gil_scoped_release unlocked;
             return if_defined(trainer.buffer(name, like));
           })
      .def("set_progress", &Trainer::set_progress)
      .def_property_readonly("updates", &Trainer::updates)
      .def_property_readonly("steps", &Trainer::steps)
      .def(
          "table",
          [](Trainer& trainer) {
            const std::vector<DeviceFlight> flights = trainer.flights();
            return flights.empty() ? "" : device_table(trainer.plan().plan(), flights, trainer.steps() - 1);
          },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "trace", [](Trainer& trainer) { return print_chrome(trace_of(trainer)); },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "page",
          [](Trainer& trainer, const std::string& label) {
            return make_page({{label, trace_of(trainer), "null"}});
          },
          py::call_guard<py::gil_scoped_release>());
  module.def("rank", [] { return processes() ? processes()->rank() : 0; });
  module.def("processes", [] { return processes() ? processes()->ranks() : 1; });
  module.def(
      "leave_processes", [] { processes().reset(); }, py::call_guard<py::gil_scoped_release>());
  module.def("set_threads", [](int threads) { at::set_num_threads(threads); });
  module.def("random_seed", [](uint64_t step_seed, int64_t first_sample, int call) {
    return random_seed(step_seed, first_sample, call);
  });
}

}  // namespace piper::python
