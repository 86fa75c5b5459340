#include "trace/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "trace/summary.h"

namespace piper {
namespace {

/// An operation of a lane: means over the steps.
struct Operation {
  const TraceEvent* first = nullptr;
  double start = 0, duration = 0;
  int steps = 0;
};
using Lane = std::map<int, Operation>;  // by number

double mean_step(const Trace& trace) {
  double sum = 0;
  for (const TraceStep& step : steps_of(trace)) sum += step.end - step.start;
  return sum / static_cast<double>(steps_of(trace).size());
}

std::vector<Lane> lanes_of(const Trace& trace) {
  const std::vector<TraceStep> steps = steps_of(trace);
  std::vector<Lane> lanes(trace.lanes.size());
  for (const TraceEvent& event : trace.events) {
    Operation& operation = lanes[static_cast<size_t>(event.lane)][event.op];
    if (!operation.first) operation.first = &event;
    operation.start += event.start - steps[static_cast<size_t>(event.step)].start;
    operation.duration += event.end - event.start;
    ++operation.steps;
  }
  for (Lane& lane : lanes)
    for (auto& [op, operation] : lane) {
      operation.start /= operation.steps;
      operation.duration /= operation.steps;
    }
  return lanes;
}

/// Devices that are in one lane here and in one lane there.
struct LanePair {
  size_t predicted, measured;
  std::vector<int> devices;
};

std::vector<LanePair> lane_pairs(const Trace& predicted, const Trace& measured) {
  std::map<int, size_t> lane_of;
  for (size_t lane = 0; lane < measured.lanes.size(); ++lane)
    for (const int device : measured.lanes[lane]) lane_of[device] = lane;
  std::map<std::pair<size_t, size_t>, std::vector<int>> shared;
  for (size_t lane = 0; lane < predicted.lanes.size(); ++lane)
    for (const int device : predicted.lanes[lane])
      if (const auto found = lane_of.find(device); found != lane_of.end())
        shared[{lane, found->second}].push_back(device);
  std::vector<LanePair> out;
  for (auto& [lanes, devices] : shared) out.push_back({lanes.first, lanes.second, std::move(devices)});
  return out;
}

Checked check_same_plan(const Trace& predicted, const Trace& measured) {
  const auto differ = [](std::string_view what, const std::string& a, const std::string& b) {
    return error(ErrorCode::E504, {}, fmt::format("the traces are of different {}: \"{}\" and \"{}\"", what, a, b))
        .help(
            "compare a run with the simulation of the plan that it ran; piper view shows any two traces side by side");
  };
  if (predicted.model != measured.model) return differ("models", predicted.model, measured.model);
  if (predicted.plan != measured.plan) return differ("plans", predicted.plan, measured.plan);
  return Ok{};
}

class Comparer {
 public:
  Comparer(const Trace& predicted, const Trace& measured, const CompareOptions& options)
      : predicted_(predicted), measured_(measured), options_(options) {}

  Result<TraceComparison> run();

 private:
  Checked compare_lanes(const Lane& predicted, const Lane& measured, const std::vector<int>& devices);
  Checked compare_operations(const Operation& predicted, const Operation& measured, const std::vector<int>& devices);
  void add_totals(const Operation& operation, double Compared::*side, double devices);
  void pick_operations();
  std::vector<Compared> means(std::map<std::string, Compared>& totals) const;

  const Trace &predicted_, &measured_;
  const CompareOptions& options_;
  TraceComparison out_;
  std::map<std::string, Compared> kinds_, passes_, streams_;
  std::vector<ComparedOperation> operations_;
};

void Comparer::add_totals(const Operation& operation, double Compared::*side, double devices) {
  const TraceEvent& event = *operation.first;
  const std::vector<std::string>& streams = side == &Compared::predicted ? predicted_.streams : measured_.streams;
  const double seconds = operation.duration * devices;
  kinds_[event.kind].*side += seconds;
  if (!event.pass.empty()) passes_[event.pass].*side += seconds;
  streams_[streams[static_cast<size_t>(event.stream)]].*side += seconds;
}

Checked Comparer::compare_operations(const Operation& predicted, const Operation& measured,
                                     const std::vector<int>& devices) {
  const TraceEvent &a = *predicted.first, &b = *measured.first;
  if (a.name != b.name || a.kind != b.kind)
    return error(ErrorCode::E504, {},
                 fmt::format("operation {} of device {} is \"{} {}\" in one trace and \"{} {}\" in the other", a.op,
                             devices[0], a.kind, a.name, b.kind, b.name))
        .help("compare a run with the simulation of the plan that it ran");
  out_.matched += static_cast<int64_t>(devices.size());
  operations_.push_back({devices,
                         a.op,
                         predicted_.streams[static_cast<size_t>(a.stream)],
                         a.kind,
                         {a.name, predicted.start, measured.start},
                         {a.name, predicted.duration, measured.duration}});
  return Ok{};
}

Checked Comparer::compare_lanes(const Lane& predicted, const Lane& measured, const std::vector<int>& devices) {
  const auto count = static_cast<double>(devices.size());
  for (const auto& [op, operation] : predicted) {
    add_totals(operation, &Compared::predicted, count);
    if (const auto other = measured.find(op); other != measured.end()) {
      PIPER_CHECK(compare_operations(operation, other->second, devices));
    } else {
      out_.only_predicted += static_cast<int64_t>(devices.size());
    }
  }
  for (const auto& [op, operation] : measured) {
    add_totals(operation, &Compared::measured, count);
    if (!predicted.contains(op)) out_.only_measured += static_cast<int64_t>(devices.size());
  }
  return Ok{};
}

/// The totals of all devices become means.
std::vector<Compared> Comparer::means(std::map<std::string, Compared>& totals) const {
  std::vector<Compared> out;
  for (auto& [name, total] : totals)
    out.push_back({name, total.predicted / out_.devices, total.measured / out_.devices});
  return out;
}

void Comparer::pick_operations() {
  const double step = out_.step.predicted;
  const auto end_difference = [](const ComparedOperation& o) {
    return std::fabs(o.start.difference() + o.duration.difference());
  };
  const ComparedOperation* first = nullptr;
  for (const ComparedOperation& o : operations_)
    if (end_difference(o) > options_.divergence * step && (!first || o.start.predicted < first->start.predicted))
      first = &o;
  if (first) out_.divergence = *first;

  const auto largest = [&](auto size) {
    std::vector<const ComparedOperation*> order;
    for (const ComparedOperation& o : operations_)
      if (size(o) > 0) order.push_back(&o);
    std::stable_sort(order.begin(), order.end(), [&](auto* a, auto* b) { return size(*a) > size(*b); });
    std::vector<ComparedOperation> out;
    for (size_t i = 0; i < std::min(order.size(), options_.most); ++i) out.push_back(*order[i]);
    return out;
  };
  out_.absolute = largest([](const ComparedOperation& o) { return std::fabs(o.duration.difference()); });
  out_.relative = largest([&](const ComparedOperation& o) {
    const bool long_enough = std::max(o.duration.predicted, o.duration.measured) >= options_.worth_a_look * step;
    return long_enough ? std::fabs(o.duration.relative().value_or(0)) : 0;
  });
}

Result<TraceComparison> Comparer::run() {
  PIPER_CHECK(check_same_plan(predicted_, measured_));
  const std::vector<LanePair> pairs = lane_pairs(predicted_, measured_);
  if (pairs.empty())
    return error(ErrorCode::E504, {}, "the traces have no device in common")
        .help("compare a run with the simulation of the plan that it ran");
  out_.model = predicted_.model;
  out_.plan = predicted_.plan;
  out_.predicted_steps = static_cast<int>(steps_of(predicted_).size());
  out_.measured_steps = static_cast<int>(steps_of(measured_).size());
  out_.step = {"step", mean_step(predicted_), mean_step(measured_)};
  const std::vector<Lane> predicted = lanes_of(predicted_), measured = lanes_of(measured_);
  for (const LanePair& pair : pairs) {
    out_.devices += static_cast<int>(pair.devices.size());
    PIPER_CHECK(compare_lanes(predicted[pair.predicted], measured[pair.measured], pair.devices));
  }
  out_.kinds = means(kinds_);
  out_.passes = means(passes_);
  out_.streams = means(streams_);
  pick_operations();
  return std::move(out_);
}

}  // namespace

Result<TraceComparison> compare(const Trace& predicted, const Trace& measured, const CompareOptions& options) {
  return Comparer(predicted, measured, options).run();
}

}  // namespace piper
