// Trainers, as Python sees them.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "base/match_pattern.h"
#include "page/page.h"
#include "python/bind.h"
#include "python/errors.h"
#include "python/processes.h"
#include "python/trainer.h"
#include "runtime/optimizer/limits.h"
#include "trace/chrome.h"
#include "train/loop/diff/scope_borders.h"
#include "train/loop/measured.h"
#include "train/loop/training.h"

namespace piper::python {
namespace {

namespace py = pybind11;

/// The tensors of a batch, in the order of the model. Held by their Python objects: those of tensors take the
/// interpreter's lock.
struct Inputs {
  std::vector<py::object> objects;
  std::vector<const at::Tensor*> tensors;
  void add(py::object object) {
    tensors.push_back(&THPVariable_Unpack(object.ptr()));
    objects.push_back(std::move(object));
  }
};

/// The usual case, a dictionary as in the example, is found out here; whatever else it is, `flatten` of the package
/// knows, and what is wrong with it.
Inputs inputs_of(const py::handle& batch, const py::tuple& names, const py::handle& flatten) {
  Inputs out;
  if (PyDict_CheckExact(batch.ptr()) && !names.empty() && PyDict_Size(batch.ptr()) == PyTuple_GET_SIZE(names.ptr())) {
    for (const py::handle name : names) {
      PyObject* const found = PyDict_GetItem(batch.ptr(), name.ptr());
      if (!found || !THPVariable_Check(found)) break;
      out.add(py::reinterpret_borrow<py::object>(found));
    }
    if (out.tensors.size() == names.size()) return out;
    out = {};
  }
  for (const py::handle tensor : py::list(flatten(batch))) out.add(py::reinterpret_borrow<py::object>(tensor));
  return out;
}

/// Kind and numbers of the optimizer, and its groups of parameters, in the order in which the package gives them.
using GroupNumbers = std::tuple<std::string, double, std::optional<double>>;
using MuonNumbers = std::tuple<int64_t, bool, double>;  // steps of the iteration, rates as AdamW's, factor of AdamW's
using AdafactorNumbers = std::tuple<double, std::optional<double>, double, double>;  // as AdafactorSettings
using OptimizerNumbers =
    std::tuple<std::string, double, double, double, double, double, double, bool, std::vector<GroupNumbers>,
               std::optional<double>, std::optional<MuonNumbers>, std::optional<AdafactorNumbers>>;
TrainerOptimizer optimizer_of(const OptimizerNumbers& given) {
  TrainerOptimizer out;
  OptimizerSettings& to = out.settings;
  std::string kind;
  std::vector<GroupNumbers> groups;
  std::optional<MuonNumbers> muon;
  std::optional<AdafactorNumbers> adafactor;
  std::optional<double> ema;
  std::tie(kind, to.learning_rate, to.weight_decay, to.beta1, to.beta2, to.epsilon, to.momentum, to.nesterov, groups,
           ema, muon, adafactor) = given;
  to.ema_decay = ema.value_or(to.ema_decay);
  to.kind = *optimizer_named(kind);
  if (muon) {
    bool match_rms = false;
    std::tie(to.newton_schulz_steps, match_rms, to.adamw_rate) = *muon;
    to.muon_rate = match_rms ? MuonRate::MatchRms : MuonRate::Ratio;
  }
  if (adafactor)
    std::tie(to.adafactor.beta2_decay, to.adafactor.epsilon, to.adafactor.least_rms, to.adafactor.clip_threshold) =
        *adafactor;
  unwrap(check_settings(to));
  for (auto& [pattern, rate, weight_decay] : groups) {
    out.groups.push_back({std::move(pattern), rate, weight_decay});
    unwrap(check_group(out.groups.back()));
  }
  return out;
}
TrainerOptimizer optimizer_of(const OptimizerNumbers& given, const StepConfig& planned) {
  TrainerOptimizer out = optimizer_of(given);
  const auto described = [](Optimizer kind, bool ema) {
    return fmt::format("{}{}", name(kind), ema ? " with an exponential moving average of the weights" : "");
  };
  const std::string plans = described(planned.optimizer, planned.ema),
                    now = described(out.settings.kind, std::get<std::optional<double>>(given).has_value());
  if (now != plans)
    throw Raised(error(ErrorCode::E105, {}, fmt::format("the plan is for {}, the optimizer is {} now", plans, now))
                     .help("make a new trainer for another kind of optimizer"));
  return out;
}

/// Threads that never come back keep what they use.
struct EndTrainer {
  void operator()(Trainer* trainer) const {
    if (!trainer->stuck()) delete trainer;
  }
};
using TrainerPointer = std::unique_ptr<Trainer, EndTrainer>;

TrainerPointer make_trainer(const Plan& plan, Tensors initial, uint64_t seed, std::optional<double> clip,
                            std::optional<double> clip_value, bool skip_not_finite, int64_t accumulate, double timeout,
                            bool together, std::shared_ptr<Processor> gpu) {
  if (clip) unwrap(check_clip("clip", *clip));
  if (clip_value) unwrap(check_clip("clip_value", *clip_value));
  const py::gil_scoped_release unlocked;
  return TrainerPointer(new Trainer(plan, std::move(initial),
                                    TrainerOptions{seed, clip, clip_value, skip_not_finite, accumulate, timeout},
                                    together ? processes() : nullptr, std::move(gpu)));
}

/// Names in the model and in files, values of what no step uses, further files, bytes of a file.
using SaveFormNumbers =
    std::tuple<std::vector<std::pair<std::string, std::string>>, Tensors, std::map<std::string, std::string>, int64_t>;
SaveForm form_of(const SaveFormNumbers& given) {
  const auto& [names, constants, texts, shard_size] = given;
  SaveForm out;
  for (const auto& [name, stored] : names) out.names.push_back({name, stored});
  out.constants = constants;
  out.texts.assign(texts.begin(), texts.end());
  out.shard_size = shard_size;
  return out;
}

Kept kept_named(const std::string& name) {
  if (name == "moment1") return Kept::Moment1;
  if (name == "moment2") return Kept::Moment2;
  if (name == "ema") return Kept::Ema;
  if (name == "whole") return Kept::Whole;
  return name == "master" ? Kept::Master : Kept::Weight;
}

std::optional<at::Tensor> if_defined(at::Tensor tensor) {
  return tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt;
}

Trace trace_of(Trainer& trainer) {
  const StepConfig& step = trainer.plan().trainable->step;
  return measured_trace(trainer.plan().plan(), trainer.flights(), trainer.plan().cluster, step.batch * step.sequence);
}

/// Loss, losses of the microbatches, norm of the gradients, whether nothing was updated, seconds, metrics.
using StepNumbers = std::tuple<double, std::vector<double>, double, bool, double, std::map<std::string, double>>;

std::map<std::string, double> as_map(const std::vector<std::string>& names, const std::vector<double>& values) {
  std::map<std::string, double> out;
  for (const NamedScalar& of : reported_metrics(names, values).named) out[of.name] = of.value;
  return out;
}

/// What the package compares with PyTorch.
py::dict as_dict(const Comparison& comparison, const ModelGraph& graph) {
  py::dict out;
  out["equal"] = comparison.report.equal();
  out["text"] = print(comparison.report);
  out["json"] = print_json(comparison.report);
  out["slices"] = comparison.reference.losses;
  out["loss"] = comparison.reference.loss;
  out["counts_differ"] = comparison.counts_differ;
  std::map<std::string, at::Tensor> gradients;
  for (const auto& [name, sum] : comparison.reference.gradients)
    gradients[name] = sum.div(static_cast<double>(comparison.reference.losses));
  out["gradients"] = gradients;
  out["weights"] = comparison.weights;
  py::list scopes;
  for (const ScopeBorder& border : scope_borders(graph)) {
    py::list values;
    for (const std::string& value : border.outputs)
      values.append(py::make_tuple(value, comparison.reference.values.slices(value)));
    scopes.append(py::make_tuple(border.scope, values));
  }
  out["scopes"] = scopes;
  return out;
}

}  // namespace

void bind_trainers(py::module_& module) {
  py::class_<Trainer, TrainerPointer>(module, "Trainer")
      .def(py::init(&make_trainer))
      .def("close", &Trainer::close, py::call_guard<py::gil_scoped_release>())
      .def("step",
           [](Trainer& trainer, const py::handle& batch, const py::tuple& names, const py::handle& flatten,
              const OptimizerNumbers& optimizer, bool sharded) {
             const Inputs inputs = inputs_of(batch, names, flatten);
             const TrainerOptimizer settings = optimizer_of(optimizer, trainer.plan().trainable->step);
             const py::gil_scoped_release unlocked;
             Step step =
                 sharded ? trainer.step_on_parts(inputs.tensors, settings) : trainer.step(inputs.tensors, settings);
             const StepOutcome& outcome = step.outcome;
             std::map<std::string, double> metrics =
                 as_map(trainer.plan().captured->slices()[0].operators.metrics, step.metrics);
             if (step.further_rows) metrics["further_rows"] = *step.further_rows;
             return StepNumbers(outcome.loss, std::move(step.microbatches), outcome.gradient_norm, outcome.skipped,
                                outcome.seconds, std::move(metrics));
           })
      .def("diff",
           [](Trainer& trainer, const py::handle& batch, const py::tuple& names, const py::handle& flatten,
              const OptimizerNumbers& optimizer, std::optional<double> tolerance, bool find_nan) {
             const Inputs inputs = inputs_of(batch, names, flatten);
             const TrainerOptimizer settings = optimizer_of(optimizer, trainer.plan().trainable->step);
             const Comparison comparison = [&] {
               const py::gil_scoped_release unlocked;
               return trainer.diff(inputs.tensors, settings, {tolerance, find_nan});
             }();
             return as_dict(comparison, *trainer.plan().captured->graph());
           })
      .def("prepare_evaluation", &Trainer::prepare_evaluation, py::call_guard<py::gil_scoped_release>())
      .def("begin_evaluation", &Trainer::begin_evaluation, py::call_guard<py::gil_scoped_release>())
      .def("evaluate",
           [](Trainer& trainer, const std::vector<py::object>& batches, const py::tuple& names,
              const py::handle& flatten) {
             std::vector<Inputs> inputs;  // held while they are read
             std::vector<std::vector<const at::Tensor*>> tensors;
             for (const py::object& batch : batches)
               tensors.push_back(inputs.emplace_back(inputs_of(batch, names, flatten)).tensors);
             const py::gil_scoped_release unlocked;
             trainer.evaluate(tensors);
           })
      .def("end_evaluation",
           [](Trainer& trainer) {
             const Evaluation out = trainer.end_evaluation();
             return std::tuple(out.loss, out.perplexity(), as_map(trainer.evaluated_metrics(), out.metrics),
                               out.batches, out.seconds);
           })
      .def_property_readonly("readable", &Trainer::readable)
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
      .def("save",
           [](Trainer& trainer, const std::string& folder, int64_t keep, int64_t keep_every,
              const SaveFormNumbers& form, double learning_rate, std::map<std::string, std::string> extra) {
             const py::gil_scoped_release unlocked;
             RunState state;
             state.learning_rate = learning_rate;
             state.extra = std::move(extra);
             return trainer.save({folder, keep, keep_every}, form_of(form), std::move(state));
           })
      .def("failed_saves",
           [](Trainer& trainer, bool wait) {
             const py::gil_scoped_release unlocked;
             std::vector<std::string> out;
             for (const Diagnostic& problem : trainer.failed_saves(wait)) out.push_back(problem.message);
             return out;
           })
      .def("resume",
           [](Trainer& trainer, const std::string& folder, const SaveFormNumbers& form) {
             const auto resumed = [&] {
               const py::gil_scoped_release unlocked;
               return trainer.resume(folder, form_of(form));
             }();
             if (!resumed) return py::object(py::none());
             std::vector<std::string> left_out;
             for (const Diagnostic& damaged : resumed->from.left_out) left_out.push_back(damaged.message);
             const RunState& state = resumed->state;
             return py::object(py::make_tuple(resumed->from.folder, state.step, state.samples, state.extra, left_out));
           })
      .def_property_readonly("half_restored", &Trainer::half_restored)
      .def("set_progress",
           [](Trainer& trainer, int64_t steps, int64_t samples, int64_t updates) {
             trainer.set_progress({steps, samples, updates});
           })
      .def("one_at_a_time", &Trainer::one_at_a_time)
      .def_property_readonly("updates", &Trainer::updates)
      .def_property_readonly("steps", &Trainer::steps)
      .def_property_readonly("samples", &Trainer::samples)
      .def_property_readonly("peak_bytes", &Trainer::peak_bytes)
      .def(
          "table",
          [](Trainer& trainer) {
            const std::vector<DeviceFlight> flights = trainer.flights();
            if (flights.empty()) return std::string();
            return device_table(trainer.plan().plan(), flights, trainer.steps() - 1) + trainer.prediction();
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
  module.def("matches_pattern", &matches_pattern);
  module.def("check_optimizer", [](const OptimizerNumbers& numbers) { optimizer_of(numbers); });
  module.def("set_threads", [](int threads) { at::set_num_threads(threads); });
  module.def("draw_mask", [](const at::Tensor& into, double keep, uint64_t step_seed, int call, int64_t first_sample,
                             int64_t samples) {
    draw_of_slice(into, {Distribution::Bernoulli, keep, 1}, call, {step_seed, first_sample}, samples);
  });
}

}  // namespace piper::python
