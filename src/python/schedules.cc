// Schedules and timelines. Verbs are written in Python as lines of the text form; here they are read, checked, printed.
#include <pybind11/stl.h>

#include "compile/grid.h"
#include "python/bind.h"
#include "python/errors.h"
#include "schedule/argument_table.h"
#include "schedule/json_schedule.h"
#include "schedule/load_schedule.h"
#include "schedule/schedule_text.h"
#include "timelines/as_schedule.h"
#include "timelines/csv.h"
#include "timelines/from_schedule.h"
#include "timelines/library.h"
#include "timelines/load_timeline.h"
#include "timelines/notation.h"
#include "timelines/with_communication.h"

namespace piper::python {
namespace {

namespace py = pybind11;

/// What each directive takes, by its verb.
py::dict directives() {
  py::dict out;
  for (const std::string& verb : all_verbs()) {
    py::list rows;
    for (const ArgumentRow& argument : arguments_of(verb)) {
      py::dict row;
      row["name"] = std::string(argument.name);
      row["kind"] = std::string(argument.kind);
      row["named"] = argument.named;
      row["required"] = argument.required;
      row["default"] = argument.usual;
      row["meaning"] = std::string(argument.meaning);
      rows.append(std::move(row));
    }
    out[py::str(verb)] = std::move(rows);
  }
  return out;
}

void bind_schedule(py::module_& module) {
  module.def("directives", directives);
  module.def("as_name", [](const std::string& text) { return as_name(text); });
  py::class_<Schedule>(module, "Schedule")
      .def_static("parse", [](const std::string& text,
                              const std::string& name) { return unwrap(parse_schedule(make_source(name, text))); })
      .def_static("parse_json",
                  [](const std::string& text, const std::string& name) {
                    return unwrap(parse_json_schedule(make_source(name, text)));
                  })
      .def_static("load", [](const std::string& path) { return unwrap(load_schedule(path)); })
      .def("text", [](const Schedule& schedule) { return print(schedule); })
      .def("json", [](const Schedule& schedule) { return unwrap(print_json_schedule(schedule)); })
      .def("timeline",
           [](const Schedule& schedule) {
             return strip(unwrap(timeline_of_orders(schedule, make_source("schedule", print(schedule)))).actions);
           })
      .def("__len__", [](const Schedule& schedule) { return schedule.directives.size(); })
      .def("__eq__", [](const Schedule& a, const Schedule& b) { return a == b; });
}

TimelineRequest request_of(int ranks, int microbatches, int stages_per_rank, std::optional<int> group,
                           std::optional<double> memory_limit) {
  TimelineRequest request;
  request.ranks = ranks;
  request.microbatches = microbatches;
  request.stages_per_rank = stages_per_rank;
  request.group = group;
  request.memory_limit = memory_limit;
  return request;
}

void bind_timeline(py::module_& module) {
  py::class_<Timeline>(module, "Timeline")
      .def_static("make",
                  [](const std::string& name, int ranks, int microbatches, int stages_per_rank,
                     std::optional<int> group, std::optional<double> memory_limit) {
                    return unwrap(
                        make_timeline(name, request_of(ranks, microbatches, stages_per_rank, group, memory_limit), {}));
                  })
      .def_static("parse",
                  [](const std::string& text, const std::string& name) {
                    return strip(unwrap(parse_timeline(make_source(name, text))).actions);
                  })
      .def_static("load", [](const std::string& path) { return strip(unwrap(load_timeline(path)).actions); })
      .def("text", [](const Timeline& timeline) { return print_timeline(timed_rows(timeline, {})); })
      .def("csv",
           [](const Timeline& timeline, bool communication) {
             return communication ? print_csv(with_transfers(timeline)) : print_csv(timeline);
           })
      .def("grid",
           [](const Timeline& timeline, int columns) {
             return print_grid(timed_rows(timeline, {}), {columns, GridColor::None, GridTime::Units});
           })
      .def("schedule", [](const Timeline& timeline) { return unwrap(as_schedule(timeline, {})); })
      .def("pipeline", [](const Timeline& timeline) { return unwrap(pipeline_of(timeline, {})); })
      .def("__eq__", [](const Timeline& a, const Timeline& b) { return a == b; });
  module.def("timelines", [] {
    py::list out;
    for (const TimelineInfo& info : timeline_library()) {
      py::dict row;
      row["name"] = info.name;
      row["title"] = info.title;
      row["paper"] = info.paper;
      row["placement"] = std::string(name(info.placement));
      row["sizes"] = info.sizes;
      row["bubble"] = info.bubble;
      row["memory"] = info.memory;
      out.append(std::move(row));
    }
    return out;
  });
}

}  // namespace

void bind_schedules(py::module_& module) {
  bind_timeline(module);
  bind_schedule(module);
}

}  // namespace piper::python
