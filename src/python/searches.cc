// piper.search: which schedule to use.
#include <fmt/format.h>
#include <pybind11/stl.h>

#include <atomic>

#include "base/bytes.h"
#include "base/read_file.h"
#include "cost/load_cluster.h"
#include "python/bind.h"
#include "python/errors.h"
#include "python/model.h"
#include "schedule/schedule_text.h"
#include "search/answer.h"

namespace piper::python {
namespace {

namespace py = pybind11;

struct SearchRequest {
  std::string cluster, memory, costs;
  int devices = 1;
  double budget = 30, time = 30;
  std::vector<std::string> fix;
  py::object progress;  // called with seconds, simulated, waiting, and seconds of the best or None; or None
};

/// The answer as text and as JSON, and the best schedule; empty, if nothing fits.
struct Searched {
  std::string text, json, best;
};

std::optional<int64_t> bytes_of_text(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto bytes = parse_bytes(text);
  if (!bytes) throw Raised(error(ErrorCode::E102, {}, fmt::format("memory: {} is no size such as 70GB", text)));
  return bytes;
}

/// The model in all forms: as it was written or captured, and with what tensor or context parallelism divides told
/// apart. A captured model that cannot be divided has one form; the compiler says why not.
ModelLoader forms_of(const Model& model) {
  if (model.forms) return model.forms;
  if (!model.trainable)
    return [graph = model.graph](LayerForm, TokenForm) -> Result<std::shared_ptr<const ModelGraph>> { return graph; };
  return [model](LayerForm layers, TokenForm tokens) -> Result<std::shared_ptr<const ModelGraph>> {
    if (layers == LayerForm::Blocks) return model.graph;
    Schedule divided;
    Shard shard;
    shard.devices.along = {"tp"};
    shard.vocabulary = layers == LayerForm::ShardedVocabulary;
    shard.sequence = Sequence::On;
    divided.directives.push_back({shard, {}});
    if (tokens.divided) divided.directives.push_back({Shard{.sequence = Sequence::Gather}, {}});
    const auto made = sketch(*model.trainable, divided);
    return made ? made->graph() : model.graph;
  };
}

/// Ctrl-C ends the search with the best so far; if there is none, it is Python's KeyboardInterrupt.
class Interrupts {
 public:
  explicit Interrupts(py::object progress) : progress_(std::move(progress)) {}

  void note(const SearchProgress& now) {
    const py::gil_scoped_acquire lock;
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      const py::object best = now.best ? py::object(py::float_(now.best->report.seconds)) : py::none();
      if (!progress_.is_none()) progress_(now.seconds, now.evaluated, now.waiting, best);
    } catch (const py::error_already_set& problem) {
      if (!problem.matches(PyExc_KeyboardInterrupt) || !now.best) throw;
      stop = true;
    }
  }

  std::atomic<bool> stop = false;

 private:
  py::object progress_;
};

Searched search_schedule(const Model& model, const std::vector<Schedule>& tried, const SearchRequest& request) {
  Interrupts interrupts(request.progress);
  const py::gil_scoped_release unlocked;
  Fixed fixed;
  std::string directives;
  for (const std::string& directive : request.fix) directives += directive + "\n";
  if (!directives.empty()) fixed = unwrap(fixed_by(unwrap(parse_schedule(make_source("fix", directives)))));
  std::optional<CostTable> costs;
  if (!request.costs.empty()) costs = unwrap(parse_cost_table(unwrap(read_file(request.costs, "cost table"))));
  const Problem problem = unwrap(make_problem(forms_of(model), unwrap(load_cluster(request.cluster)), std::move(costs),
                                              request.devices, bytes_of_text(request.memory), std::move(fixed)));
  unwrap(check_space(problem.limits));
  std::vector<std::pair<std::string, Schedule>> named;
  for (size_t i = 0; i < tried.size(); ++i) named.emplace_back(fmt::format("tried[{}]", i), tried[i]);
  SearchOptions options;
  options.budget = request.budget;
  options.time = request.time;
  options.stop = &interrupts.stop;
  options.progress = [&](const SearchProgress& now) { interrupts.note(now); };
  const SearchResult result = unwrap(search(problem, named, options));
  std::vector<WayOut> ways;
  if (!result.best()) ways = ways_out(problem, result, options);
  Searched out{print(problem, result, ways), print_json(problem, result, ways), ""};
  if (result.best()) out.best = print(result.best()->schedule);
  return out;
}

}  // namespace

void bind_searches(py::module_& module) {
  py::class_<Searched>(module, "Searched")
      .def_readonly("text", &Searched::text)
      .def_readonly("json", &Searched::json)
      .def_readonly("best", &Searched::best);
  module.def("search", [](const Model& model, const std::vector<Schedule>& tried, const std::string& cluster,
                          int devices, const std::string& memory, const std::string& costs, double budget,
                          double time, const std::vector<std::string>& fix, const py::object& progress) {
    return search_schedule(model, tried, {cluster, memory, costs, devices, budget, time, fix, progress});
  });
}

}  // namespace piper::python
