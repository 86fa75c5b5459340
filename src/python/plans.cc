// Plans: compiled, proved, looked at and run on paper.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <pybind11/stl.h>

#include "python/plan.h"

#include "base/bytes.h"
#include "base/read_file.h"
#include "compile/explain.h"
#include "compile/grid.h"
#include "compile/tried_hints.h"
#include "cost/load_cluster.h"
#include "ir/dag_text.h"
#include "model/element_types.h"
#include "page/page.h"
#include "plan/memory_report.h"
#include "plan/plan_text.h"
#include "python/bind.h"
#include "python/errors.h"
#include "python/model.h"
#include "schedule/schedule_text.h"
#include "sim/as_trace.h"
#include "sim/step_report.h"
#include "trace/chrome.h"

namespace piper::python {
namespace {

namespace py = pybind11;

/// What a plan depends on of an optimizer.
struct RequestedOptimizer {
  std::string kind, gradients, master, moments;  // empty: as the model says
  std::vector<std::string> matrices;             // that Muon updates
  bool ema = false;
};
StepConfig with_optimizer(StepConfig step, const RequestedOptimizer& optimizer) {
  const auto dtype = [](const std::string& name) {
    const std::optional<DType> found = dtype_named(name);
    if (!found)
      throw Raised(error(ErrorCode::E105, {}, fmt::format("there is no dtype {}", name))
                       .help("one of float64, float32, bfloat16"));
    return *found;
  };
  step.optimizer = *optimizer_named(optimizer.kind);
  if (!optimizer.gradients.empty()) step.gradients = dtype(optimizer.gradients);
  if (!optimizer.master.empty()) step.master = dtype(optimizer.master);
  if (!optimizer.moments.empty()) step.moments = dtype(optimizer.moments);
  step.matrices = optimizer.matrices;
  step.ema = optimizer.ema;
  unwrap(check_moments(step));
  return step;
}

/// Of several GPUs the one that the calling thread uses: operators are measured there.
c10::Device used_now(c10::Device target) {
  return target.is_cpu() ? target : c10::impl::VirtualGuardImpl(target.type()).getDevice();
}

struct CompileRequest {
  std::string cluster, costs;
  RequestedOptimizer optimizer;
  bool measure = true;
  std::shared_ptr<KernelStore> kernels = nullptr;  // none: operators run as recorded
  PlanFor plan_for = PlanFor::Training;
};

Plan compile_plan(const Model& model, const Schedule& schedule, const CompileRequest& request) {
  const py::gil_scoped_release unlocked;
  Plan out;
  CompileOptions options;
  options.plan_for = request.plan_for;
  if (!request.cluster.empty()) {
    out.cluster = unwrap(load_cluster(request.cluster));
    options.cluster = out.cluster;
    for (DeviceKind& kind : options.cluster.kinds) kind.memory.reset();  // check() says so when all else can be seen
  }
  if (!request.costs.empty())
    out.costs = options.costs = unwrap(parse_cost_table(unwrap(read_file(request.costs, "cost table"))));
  out.predicts = !request.cluster.empty() || !request.costs.empty();
  if (model.trainable) {
    TrainableModel trained = *model.trainable;
    if (!request.optimizer.kind.empty()) trained.step = with_optimizer(trained.step, request.optimizer);
    trained.target = used_now(trained.target);
    trained.kernels = request.kernels;
    out.captured = std::make_shared<const CapturedModel>(
        unwrap(capture_for(trained, *model.sketch, schedule, options, request.measure)));
    out.trainable = std::move(trained);
  }
  out.compiled = std::make_shared<const Compiled>(unwrap(
      out.captured ? compile(*out.captured, schedule, options) : compile_with_hints(model.graph, schedule, options)));
  if (out.captured) unwrap(check_programs(*out.captured, out.plan()));
  return out;
}

std::string check(const Plan& of) {
  CompileOptions options;
  options.cluster = of.cluster;
  options.costs = of.costs;
  unwrap(check_capacity_with_hints(*of.compiled, of.compiled->schedule, options));
  size_t devices = 0, ops = 0;
  int64_t peak = 0;
  for (const PlanTemplate& t : of.plan().templates) {
    devices += t.devices.size();
    ops += t.ops.size();
    peak = std::max(peak, memory_peak(of.plan(), t).total);
  }
  return fmt::format(
      "sound: {} device{} in {} kind{}, {} nodes, {} operations, plan {:016x}; peak memory of a device: {}", devices,
      devices == 1 ? "" : "s", of.plan().templates.size(), of.plan().templates.size() == 1 ? "" : "s",
      of.compiled->linear.dag.nodes.size(), ops, hash(of.plan()), human_bytes(peak));
}

py::list memory_rows(const Plan& of) {
  py::list rows;
  for (const PlanTemplate& t : of.plan().templates) {
    const MemoryPeak peak = memory_peak(of.plan(), t);
    py::dict row;
    row["devices"] = t.devices;
    row["peak"] = peak.total;
    for (int c = 0; c < category_count; ++c)
      row[py::str(std::string(name(static_cast<Category>(c))))] = peak.by_category[static_cast<size_t>(c)];
    row["at"] = peak.op.valid() ? describe(of.plan(), t.ops[peak.op].label) : std::string();
    rows.append(std::move(row));
  }
  return rows;
}

/// A step on paper.
struct Simulated {
  StepReport report;
  Trace trace;
};

Simulated simulate_plan(const Plan& of, const std::string& on) {
  const py::gil_scoped_release unlocked;
  const Cluster cluster = on.empty() ? of.cluster : unwrap(load_cluster(on));
  const Simulation simulation = unwrap(simulate(of.plan(), cluster, of.costs ? &*of.costs : nullptr));
  const ModelGraph& model = *of.compiled->linear.dag.model;
  Simulated out{step_report(model, of.plan(), cluster, simulation), as_trace(of.plan(), cluster, simulation)};
  out.trace.tokens = model.step.batch * model.step.sequence;
  out.trace.seconds_at_peak = out.report.mfu * out.report.seconds;
  return out;
}

py::list device_rows(const StepReport& report) {
  py::list rows;
  for (const DeviceReport& device : report.devices) {
    py::dict row;
    row["devices"] = device.devices;
    row["compute"] = device.use.compute;
    row["exposed"] = device.use.exposed;
    row["idle"] = device.use.idle;
    row["peak"] = device.peak_bytes;
    rows.append(std::move(row));
  }
  return rows;
}

void bind_simulation(py::module_& module) {
  py::class_<Simulated>(module, "Simulation")
      .def_property_readonly("seconds", [](const Simulated& s) { return s.report.seconds; })
      .def_property_readonly("tokens_per_second", [](const Simulated& s) { return s.report.tokens_per_second; })
      .def_property_readonly("mfu", [](const Simulated& s) { return s.report.mfu; })
      .def_property_readonly("bubble", [](const Simulated& s) { return s.report.bubble; })
      .def_property_readonly("exposed", [](const Simulated& s) { return s.report.exposed; })
      .def_property_readonly("peak", [](const Simulated& s) { return s.report.peak_bytes; })
      .def_property_readonly("devices", [](const Simulated& s) { return device_rows(s.report); })
      .def("text", [](const Simulated& s) { return print(s.report); })
      .def("trace", [](const Simulated& s) { return print_chrome(s.trace); })
      .def("page", [](const Simulated& s, const std::string& label) {
        return make_page({{label, s.trace, "null"}});
      });
}

std::string plan_text(const Plan& of, std::optional<int> device) {
  if (!device) return print(of.plan());
  const std::vector<TemplateId> templates = template_of_device(of.plan());
  if (*device < 0 || *device >= device_count(of.plan()) || !templates[static_cast<size_t>(*device)].valid())
    throw Raised(error(ErrorCode::E205, {},
                       fmt::format("device {} has no plan; there are devices 0 to {}", *device, templates.size() - 1)));
  return print_device(of.plan(), *device);
}

}  // namespace

void bind_plans(py::module_& module) {
  bind_simulation(module);
  py::class_<Plan>(module, "Plan")
      .def_static("compile",
                  [](const Model& model, const Schedule& schedule, const std::string& cluster, const std::string& costs,
                     const std::string& optimizer, const std::string& gradients, const std::string& master,
                     const std::string& moments, const std::vector<std::string>& matrices, bool ema, bool measure,
                     std::shared_ptr<KernelStore> kernels, bool evaluation) {
                    return compile_plan(model, schedule,
                                        {cluster,
                                         costs,
                                         {optimizer, gradients, master, moments, matrices, ema},
                                         measure,
                                         std::move(kernels),
                                         evaluation ? PlanFor::Evaluation : PlanFor::Training});
                  })
      .def_property_readonly("devices", [](const Plan& of) { return device_count(of.plan()); })
      .def_property_readonly("hash", [](const Plan& of) { return fmt::format("{:016x}", hash(of.plan())); })
      .def_property_readonly("losses", [](const Plan& of) { return of.plan().losses; })
      .def_property_readonly("captured", [](const Plan& of) { return of.trainable.has_value(); })
      .def("text", &plan_text)
      .def("schedule", [](const Plan& of) { return of.compiled->schedule; })
      .def("dag", [](const Plan& of) { return print(of.compiled->linear.dag); })
      .def("timeline", [](const Plan& of) { return print_timeline(timed_rows(of.compiled->linear)); })
      .def("grid",
           [](const Plan& of, int columns) {
             return print_grid(timed_rows(of.compiled->linear), {columns, GridColor::None, GridTime::Seconds});
           })
      .def("check", &check)
      .def("memory", &memory_rows)
      .def("memory_table", [](const Plan& of) { return memory_table(of.plan()); })
      .def("explain", [](const Plan& of, const std::string& node) { return unwrap(explain(*of.compiled, node)); })
      .def("simulate", &simulate_plan);
  module.def("clusters", [] {
    std::vector<std::string> names;
    for (const ShippedCluster& cluster : shipped_clusters()) names.emplace_back(cluster.name);
    return names;
  });
}

}  // namespace piper::python
