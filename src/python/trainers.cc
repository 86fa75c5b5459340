// Trainers, as Python sees them.
#include <ATen/Parallel.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "python/bind.h"
#include "python/errors.h"
#include "python/trainer.h"
#include "tools/page.h"
#include "trace/chrome.h"
#include "train/loop/measured.h"
#include "train/loop/training.h"

namespace piper::python {
namespace {

namespace py = pybind11;

/// The optimiser's numbers, as the package gives them.
OptimizerSettings settings_of(const py::dict& given) {
  OptimizerSettings out;
  out.kind = *optimizer_named(given["kind"].cast<std::string>());
  out.learning_rate = given["lr"].cast<double>();
  const auto set = [&](const char* key, double& into) {
    if (given.contains(key)) into = given[key].cast<double>();
  };
  set("beta1", out.beta1);
  set("beta2", out.beta2);
  set("eps", out.epsilon);
  set("weight_decay", out.weight_decay);
  set("momentum", out.momentum);
  return out;
}

std::unique_ptr<Trainer> make_trainer(const Plan& plan, Tensors initial, uint64_t seed, std::optional<double> clip,
                                      bool skip_not_finite, double patience) {
  const py::gil_scoped_release unlocked;
  return std::make_unique<Trainer>(plan, std::move(initial), TrainerOptions{seed, clip, skip_not_finite, patience});
}

Trace trace_of(Trainer& trainer) {
  const StepConfig& step = trainer.plan().trainable->step;
  return measured_trace(trainer.plan().plan(), trainer.flights(), trainer.plan().cluster, step.batch * step.sequence);
}

}  // namespace

void bind_trainers(py::module_& module) {
  py::class_<Trainer>(module, "Trainer")
      .def(py::init(&make_trainer))
      .def("step",
           [](Trainer& trainer, const std::vector<at::Tensor>& inputs, const py::dict& optimizer) {
             const OptimizerSettings settings = settings_of(optimizer);
             Step step;
             {
               const py::gil_scoped_release unlocked;
               step = trainer.step(inputs, settings);
             }
             return py::make_tuple(step.outcome.loss, step.microbatches, step.outcome.gradient_norm,
                                   step.outcome.skipped, step.outcome.seconds);
           })
      .def("set_parameters", &Trainer::set_parameters, py::call_guard<py::gil_scoped_release>())
      .def("weight",
           [](Trainer& trainer, const std::string& name) -> std::optional<at::Tensor> {
             const py::gil_scoped_release unlocked;
             at::Tensor weight = trainer.weight(name);
             return weight.defined() ? std::optional(weight) : std::nullopt;
           })
      .def_property_readonly("steps", &Trainer::steps)
      .def("table",
           [](Trainer& trainer) { return device_table(trainer.plan().plan(), trainer.flights(), trainer.steps() - 1); })
      .def("trace", [](Trainer& trainer) { return print_chrome(trace_of(trainer)); })
      .def("page", [](Trainer& trainer, const std::string& label) {
        return make_page({{label, trace_of(trainer), "null"}});
      });
  module.def("set_threads", [](int threads) { at::set_num_threads(threads); });
  module.def("random_seed", [](uint64_t step_seed, int64_t first_sample, int call) {
    return random_seed(step_seed, first_sample, call);
  });
}

}  // namespace piper::python
