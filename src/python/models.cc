// Models: captured while Python runs a torch.nn.Module on fake tensors, or read from files.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <set>

#include "capture/record/gradient_hooks.h"
#include "capture/sharding/sample_labels.h"
#include "model/load_model.h"
#include "model/model_text.h"
#include "models/build_model.h"
#include "python/bind.h"
#include "python/errors.h"
#include "python/model.h"

namespace piper::python {
namespace {

namespace py = pybind11;

/// A Python object that may be let go of without the interpreter's lock.
using SharedObject = std::shared_ptr<py::object>;
SharedObject share(py::object object) {
  return {new py::object(std::move(object)), [](py::object* last) {
            const py::gil_scoped_acquire lock;
            delete last;
          }};
}

/// `with piper.annotate(…)`: a scope of the thread's recording.
class Scope {
 public:
  Scope(std::string name, int64_t experts) : name_(std::move(name)), experts_(experts) {}
  void enter() { open_.emplace_back(std::make_unique<annotate>(name_, ScopeAttributes{experts_})); }
  void leave() { open_.pop_back(); }

 private:
  std::string name_;
  int64_t experts_;
  std::vector<std::unique_ptr<annotate>> open_;  // one object may be entered again inside itself
};

/// The place of a line in a Python file, as `frontend.place` gives it: file, text, first and last byte.
SourceRange place_of(const py::object& place) {
  if (place.is_none()) return {};
  const auto [file, text, begin, end] = place.cast<std::tuple<std::string, std::string, int, int>>();
  return {make_source(file, text), begin, end};
}

/// What Python code threw while it was recorded, in our words.
[[noreturn]] void refuse(const py::error_already_set& problem, const py::object& frontend) {
  const RecordingState state = recording_state();
  const std::string message = py::str(problem.value()), type = py::str(problem.type().attr("__name__"));
  Diagnostic out = state.refused && message.find(state.refused->message) != std::string::npos
                       ? *state.refused
                       : error(ErrorCode::E605, {}, fmt::format("{}: {}: {}", state.where, type, message))
                             .help(
                                 "the model's own code failed on fake tensors, which have shapes but no values; does "
                                 "it run there with a batch of these shapes?");
  out.where = place_of(frontend.attr("place")(problem.value()));
  throw Refused(std::move(out));
}

/// The model behind a Python object with `loss(inputs)`, `version()`, `mode()`, a context in which everything is fake,
/// and `place(exception)`. `device`: where fake tensors say they are.
MetaModel meta_model(const py::object& python, std::vector<NamedTensor> parameters, std::vector<NamedTensor> buffers,
                     c10::Device device) {
  MetaModel out;
  out.parameters = std::move(parameters);
  out.buffers = std::move(buffers);
  out.device = device;
  const SharedObject frontend = share(python);
  out.loss = [frontend](const std::vector<at::Tensor>& inputs) {
    const py::gil_scoped_acquire lock;
    try {
      return frontend->attr("loss")(inputs).cast<at::Tensor>();
    } catch (const py::error_already_set& problem) {
      refuse(problem, *frontend);
    }
  };
  out.metrics = [frontend] {
    const py::gil_scoped_acquire lock;
    std::vector<NamedTensor> named;
    for (auto& [name, tensor] : frontend->attr("metrics")().cast<std::vector<std::pair<std::string, at::Tensor>>>())
      named.push_back({name, tensor});
    return named;
  };
  out.version = [frontend] {
    const py::gil_scoped_acquire lock;
    return frontend->attr("version")().cast<std::string>();
  };
  out.around = [frontend](const std::function<void()>& run) {
    const py::gil_scoped_acquire lock;
    const py::object mode = frontend->attr("mode")();
    mode.attr("__enter__")();
    const auto leave = [&] {
      PyErr_Clear();  // a Python error that a diagnostic has taken the place of
      mode.attr("__exit__")(py::none(), py::none(), py::none());
    };
    try {
      const py::gil_scoped_release unlocked;
      run();
    } catch (...) {
      leave();
      throw;
    }
    leave();
  };
  return out;
}

/// Every parameter that wants a gradient gets one.
Checked check_gradients(const MetaModel& model, const OperatorGraph& graph) {
  std::set<std::string> reached;
  for (const Contribution& gradient : graph.gradients) reached.insert(graph[gradient.parameter].name);
  std::vector<std::string> missing;
  for (const NamedTensor& parameter : model.parameters)
    if (parameter.tensor.requires_grad() && !reached.contains(parameter.name)) missing.push_back(parameter.name);
  if (missing.empty()) return Ok{};
  const size_t count = missing.size();
  if (count > 3) missing.resize(3);
  return error(ErrorCode::E608, {},
               fmt::format("{} parameter{} no gradient: {}{}", count, count == 1 ? " gets" : "s get",
                           fmt::join(missing, ", "), count > 3 ? ", …" : ""))
      .help("the loss does not depend on it: is it computed under no_grad, or from detached or integer tensors?")
      .help("parameters that are not to be trained: parameter.requires_grad_(False)");
}

DType dtype_of(const std::string& name) {
  const std::optional<DType> found = dtype_named(name);
  if (!found)
    throw Raised(error(ErrorCode::E605, {}, fmt::format("tensors of dtype {} cannot be planned", name))
                     .help(fmt::format("one of {}", fmt::join(dtype_names(), ", "))));
  return *found;
}

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
std::vector<NamedTensor> named(const NamedTensors& tensors) {
  std::vector<NamedTensor> out;
  for (const auto& [name, tensor] : tensors) out.push_back({name, tensor});
  return out;
}

/// `inputs`: name, dtype, sizes of a sample. `evaluated`: it is not trained so.
Model capture_model(const py::object& frontend, const std::string& name, const NamedTensors& parameters,
                    const NamedTensors& buffers, const NamedTensors& originals,
                    const std::vector<std::tuple<std::string, std::string, std::vector<int64_t>>>& inputs,
                    int64_t batch, int64_t sequence, const std::string& weights, const std::string& device,
                    bool declares_count, std::optional<int64_t> loss_block, const std::string& saved, bool evaluated) {
  TrainableModel model;
  model.name = name;
  model.step.batch = batch;
  model.step.sequence = sequence;
  model.step.weights = model.step.gradients = dtype_of(weights);
  model.target = c10::Device(device);
  model.meta = meta_model(frontend, named(parameters), named(buffers), model.target);
  model.meta.originals = named(originals);
  model.meta.counts_batch = true;
  model.meta.declares_count = declares_count;
  if (loss_block) model.loss_blocks = loss_blocks_of(*loss_block);
  if (!saved.empty()) model.saved_activations = saved == "fewest" ? Saved::Fewest : Saved::AsRecorded;
  for (const auto& [input, dtype, sizes] : inputs) model.inputs.push_back({input, dtype_of(dtype), sizes});
  Model out;
  {
    const py::gil_scoped_release unlocked;
    out.sketch = unwrap(sketch(model));
    if (!evaluated) unwrap(check_gradients(model.meta, out.sketch->slices()[0].operators));
  }
  out.graph = out.sketch->graph();
  out.trainable = std::move(model);
  return out;
}

/// A ready libtorch model of a configuration, captured like any other.
Model capture_config(const std::string& text, const std::string& name) {
  Model out;
  out.trainable = unwrap(build_model(make_source(name, text), 0));
  out.sketch = unwrap(sketch(*out.trainable));
  out.graph = out.sketch->graph();
  return out;
}

/// For tests: the calls of one recording, as they were made.
std::string record_text(const py::object& frontend, const NamedTensors& parameters, const NamedTensors& buffers,
                        const NamedTensors& inputs) {
  const MetaModel model = meta_model(frontend, named(parameters), named(buffers), c10::kCPU);
  const py::gil_scoped_release unlocked;
  return print(unwrap(record(model, named(inputs))).graph);
}

py::list parameters_of(const Model& model) {
  py::list out;
  for (const Parameter& parameter : model.graph->parameters) {
    std::vector<int64_t> sizes;
    for (const Dim& dim : parameter.shape) sizes.push_back(dim.extent(1));
    out.append(py::make_tuple(parameter.name, std::string(name(parameter.dtype)), sizes, !parameter.frozen));
  }
  return out;
}

}  // namespace

void bind_models(py::module_& module) {
  py::class_<Scope>(module, "Scope")
      .def(py::init<std::string, int64_t>(), py::arg("name"), py::arg("experts") = 0)
      .def("enter", &Scope::enter)
      .def("leave", &Scope::leave)
      .def_static("note_failure", &note_failure);
  module.def("record", &record_text);
  module.def("is_recording", &is_recording);
  module.def("fixed_number", &fixed_number);
  module.def("has_accumulation_hook", &has_accumulation_hook);
  py::class_<Model>(module, "Model")
      .def_static("load",
                  [](const std::string& spec, std::optional<int64_t> batch, std::optional<int64_t> sequence,
                     bool tensor_parallel, bool vocabulary) {
                    StepOverrides step;
                    step.batch = batch;
                    step.sequence = sequence;
                    const LayerForm form = vocabulary        ? LayerForm::ShardedVocabulary
                                           : tensor_parallel ? LayerForm::Sharded
                                                             : LayerForm::Blocks;
                    const ModelLoader load =
                        [spec, step](LayerForm layers, TokenForm tokens) -> Result<std::shared_ptr<const ModelGraph>> {
                      PIPER_TRY(ModelGraph made, load_model(spec, step, layers, tokens));
                      return std::make_shared<const ModelGraph>(std::move(made));
                    };
                    return Model{unwrap(load(form, TokenForm{})), {}, {}, load};
                  })
      .def_static(
          "parse",
          [](const std::string& text, const std::string& name) {
            return Model{std::make_shared<const ModelGraph>(unwrap(parse_model(make_source(name, text)))), {}, {}};
          })
      .def_static("capture", &capture_model)
      .def_static("capture_config", &capture_config, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("name", [](const Model& model) { return model.graph->name; })
      .def_property_readonly("batch", [](const Model& model) { return model.graph->step.batch; })
      .def_property_readonly("captured", [](const Model& model) { return model.trainable.has_value(); })
      .def("text", [](const Model& model) { return print(*model.graph); })
      .def("operators",
           [](const Model& model) { return model.sketch ? print(model.sketch->slices()[0].operators) : std::string(); })
      .def("chunks",
           [](const Model& model) {
             std::vector<std::string> names;
             for (const Chunk& chunk : model.graph->chunks) names.push_back(chunk.name);
             return names;
           })
      .def("parameters", &parameters_of)
      .def("mixed_samples",
           [](const Model& model) -> std::optional<std::pair<std::string, std::string>> {
             const auto found = find_mixed_samples(model.sketch->slices()[0]);
             if (!found) return std::nullopt;
             return std::pair(found->op, found->scope);
           })
      .def("uncounted",
           [](const Model& model) {
             std::vector<std::pair<std::string, std::string>> out;
             for (const SliceDependence& found : model.sketch->slices()[0].counts.uncounted)
               out.emplace_back(found.op, found.scope);
             return out;
           })
      .def_property_readonly(
          "counts",
          [](const Model& model) { return model.sketch ? model.sketch->slices()[0].counts.counts.size() : 0; })
      .def("unshardable", [](const Model& model) {
        std::vector<std::string> out;
        if (model.sketch)
          for (const Diagnostic& problem : model.sketch->unshardable()) out.push_back(render(problem));
        return out;
      });
}

}  // namespace piper::python
