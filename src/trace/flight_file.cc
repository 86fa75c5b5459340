#include "trace/flight_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace piper {
namespace {

using Json = nlohmann::ordered_json;
constexpr int version = 1;
const std::string as_written = "use the file as the run has written it";

/// Calls `each` with the name and the value of everything that an operation must have, and of what a process must have.
template <class Event, class Each>
void each_of_event(Event& event, const Each& each) {
  each("device", event.device);
  each("step", event.step);
  each("op", event.op);
  each("stream", event.stream);
  each("kind", event.kind);
  each("name", event.name);
  each("started", event.started);
  each("ended", event.ended);
}
template <class File, class Each>
void each_of_head(File& file, const Each& each) {
  each("rank", file.rank);
  each("host", file.host);
  each("model", file.model);
  each("plan", file.plan);
  each("reason", file.reason);
  each("written", file.written);
  each("clock_error", file.clock_error);
}
auto put_into(Json& json) {
  return [&json](const char* name, const auto& value) { json[name] = value; };
}
auto get_from(const Json& json) {
  return [&json](const char* name, auto& value) { json.at(name).get_to(value); };
}

Json as_json(const FlightEvent& event) {
  Json out;
  each_of_event(event, put_into(out));
  if (!event.pass.empty()) out["pass"] = event.pass;
  if (event.slice >= 0) out["slice"] = event.slice;
  if (!event.place.empty()) out["place"] = event.place;
  if (!event.directive.empty()) out["directive"] = event.directive;
  if (event.in_progress) out["in_progress"] = true;
  return out;
}

FlightEvent event_of(const Json& json) {
  FlightEvent out;
  each_of_event(out, get_from(json));
  out.pass = json.value("pass", "");
  out.slice = json.value("slice", -1);
  out.place = json.value("place", "");
  out.directive = json.value("directive", "");
  out.in_progress = json.value("in_progress", false);
  return out;
}

std::string label(const FlightEvent& event) {
  return fmt::format("step {} op {} {} {} on {}{}", event.step, event.op, event.kind, event.name, event.stream,
                     event.place.empty() ? "" : fmt::format(" ({})", event.place));
}

double last_moment(const std::vector<FlightFile>& files) {
  double out = 0;
  for (const FlightFile& file : files) out = std::max(out, file.written);
  return out;
}

/// The devices of a file, each with its operations by start.
std::map<int, std::vector<const FlightEvent*>> by_device(const FlightFile& file) {
  std::map<int, std::vector<const FlightEvent*>> out;
  for (const FlightEvent& event : file.events) out[event.device].push_back(&event);
  for (auto& [device, events] : out)
    std::stable_sort(events.begin(), events.end(),
                     [](const FlightEvent* a, const FlightEvent* b) { return a->started < b->started; });
  return out;
}

}  // namespace

std::string print(const FlightFile& file) {
  Json head = {{"format", "piper-flight"}, {"version", version}};
  each_of_head(file, put_into(head));
  const auto line = [](const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; };
  std::string out = line(head);
  for (const FlightEvent& event : file.events) out += line(as_json(event));
  return out;
}

Result<FlightFile> parse_flight_file(const SourceFilePtr& file) {
  const auto refuse = [&](ErrorCode code, size_t begin, const std::string& message, const std::string& help) {
    return error(code, SourceRange{file, static_cast<int>(begin), static_cast<int>(begin)}, message).help(help);
  };
  FlightFile out;
  size_t begin = 0;
  for (int number = 0; begin < file->text.size(); ++number) {
    const size_t end = std::min(file->text.find('\n', begin), file->text.size());
    const Json json = Json::parse(file->text.begin() + static_cast<std::ptrdiff_t>(begin),
                                  file->text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (json.is_discarded()) return refuse(ErrorCode::E106, begin, "this line is no JSON", as_written);
    if (number == 0 && (!json.is_object() || json.value("format", Json()) != "piper-flight"))
      return refuse(ErrorCode::E501, begin, "this is no record of a run that failed",
                    "a job of several processes writes them next to its metrics: METRICS.rank0.flight");
    try {
      if (number > 0) {
        out.events.push_back(event_of(json));
      } else {
        if (json.at("version") != version)
          return refuse(ErrorCode::E502, begin,
                        fmt::format("it has version {}, this program knows {}", json.at("version").dump(), version),
                        "read it with the program that wrote it");
        each_of_head(out, get_from(json));
      }
    } catch (const Json::exception& problem) {
      return refuse(ErrorCode::E503, begin, fmt::format("this line misses something: {}", problem.what()), as_written);
    }
    if (number > 0 && !(out.events.back().ended >= out.events.back().started))
      return refuse(ErrorCode::E503, begin, "an operation ends before it starts", as_written);
    begin = end + 1;
  }
  if (begin == 0) return refuse(ErrorCode::E501, 0, "this is no record of a run that failed: it is empty", as_written);
  return out;
}

std::string describe(const std::vector<FlightFile>& files, size_t operations) {
  const double end = last_moment(files);
  std::string out;
  double clock_error = 0;
  for (const FlightFile& file : files) {
    clock_error = std::max(clock_error, file.clock_error);
    out += fmt::format("rank {} on {}: {}\n", file.rank, file.host, file.reason.substr(0, file.reason.find('\n')));
    for (const auto& [device, events] : by_device(file)) {
      out += fmt::format("  device {}\n", device);
      for (size_t i = 0; i < events.size(); ++i) {
        const FlightEvent& event = *events[i];
        if (i + operations < events.size() && !event.in_progress) continue;
        out += fmt::format(
            "  {:>12.3f} s  {}: {}\n", event.started - end, label(event),
            event.in_progress ? "in progress" : fmt::format("{:.3f} ms", (event.ended - event.started) * 1e3));
      }
    }
  }
  return out +
         fmt::format("times are before the last that was written; clocks are known to {:.3f} ms\n", clock_error * 1e3);
}

Result<Trace> as_trace(const std::vector<FlightFile>& files) {
  Trace out;
  out.source = "measured";
  double zero = last_moment(files);
  std::map<std::string, int> streams;
  std::map<std::pair<std::string, std::string>, int> origins;
  std::map<int64_t, TraceStep> steps;
  std::vector<int64_t> numbers;  // of the steps of the events
  for (const FlightFile& file : files) {
    if (file.plan != files[0].plan)
      return error(ErrorCode::E503, {},
                   fmt::format("the records are of different jobs: rank {} ran plan {}, rank {} plan {}", files[0].rank,
                               files[0].plan, file.rank, file.plan))
          .help("give the records of one run");
    for (const FlightEvent& event : file.events) zero = std::min(zero, event.started);
  }
  for (const FlightFile& file : files) {
    out.model = file.model;
    out.plan = file.plan;
    for (auto& [device, events] : by_device(file)) {
      for (const std::vector<int>& lane : out.lanes)
        if (lane[0] == device)
          return error(ErrorCode::E503, {}, fmt::format("device {} is in two records", device))
              .help("give the record of every rank once");
      const int lane = static_cast<int>(out.lanes.size());
      out.lanes.push_back({device});
      std::vector<const FlightEvent*> in_order = events;  // of issue
      std::stable_sort(in_order.begin(), in_order.end(), [](const FlightEvent* a, const FlightEvent* b) {
        return std::pair(a->step, a->op) < std::pair(b->step, b->op);
      });
      for (const FlightEvent* from : in_order) {
        TraceEvent event;
        event.lane = lane;
        event.stream = streams.try_emplace(from->stream, static_cast<int>(streams.size())).first->second;
        event.op = from->op;
        event.name = from->in_progress ? from->name + " (in progress)" : from->name;
        event.kind = from->kind;
        event.pass = from->pass;
        event.slice = from->slice;
        event.start = from->started - zero;
        event.end = from->ended - zero;
        if (!from->place.empty())
          event.origin =
              origins.try_emplace({from->place, from->directive}, static_cast<int>(origins.size())).first->second;
        const auto [step, fresh] = steps.try_emplace(from->step, TraceStep{from->step, event.start, event.end});
        step->second.start = std::min(step->second.start, event.start);
        step->second.end = std::max(step->second.end, event.end);
        out.seconds = std::max(out.seconds, event.end);
        out.events.push_back(std::move(event));
        numbers.push_back(from->step);
      }
    }
  }
  for (const auto& [number, step] : steps) out.steps.push_back(step);
  for (size_t i = 0; i < out.events.size(); ++i)
    out.events[i].step = static_cast<int>(std::distance(steps.begin(), steps.find(numbers[i])));
  out.streams.resize(streams.size());
  for (const auto& [name, i] : streams) out.streams[static_cast<size_t>(i)] = name;
  out.origins.resize(origins.size());
  for (const auto& [origin, i] : origins) out.origins[static_cast<size_t>(i)] = {origin.first, origin.second};
  return out;
}

}  // namespace piper
