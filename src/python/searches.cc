// piper.search: which schedule to use.
#include <fmt/format.h>
#include <pybind11/stl.h>

#include "base/bytes.h"
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
  std::string cluster, memory;
  int devices = 1;
  double budget = 30;
  std::vector<std::string> fix;
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

Searched search_schedule(const Model& model, const std::vector<Schedule>& tried, const SearchRequest& request) {
  const py::gil_scoped_release unlocked;
  Fixed fixed;
  std::string directives;
  for (const std::string& directive : request.fix) directives += directive + "\n";
  if (!directives.empty()) fixed = unwrap(fixed_by(unwrap(parse_schedule(make_source("fix", directives)))));
  const Problem problem =
      unwrap(make_problem({model.graph, model.graph, model.graph}, unwrap(load_cluster(request.cluster)), {},
                          request.devices, bytes_of_text(request.memory), std::move(fixed)));
  unwrap(check_space(problem.limits));
  std::vector<std::pair<std::string, Schedule>> named;
  for (size_t i = 0; i < tried.size(); ++i) named.emplace_back(fmt::format("tried[{}]", i), tried[i]);
  SearchOptions options;
  options.budget = request.budget;
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
                          int devices, const std::string& memory, double budget, const std::vector<std::string>& fix) {
    return search_schedule(model, tried, {cluster, memory, devices, budget, fix});
  });
}

}  // namespace piper::python
