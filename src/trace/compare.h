// Where a prediction and a run differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/trace.h"

namespace piper {

/// Seconds of the same thing in both traces.
struct Compared {
  std::string name;
  double predicted = 0, measured = 0;

  double difference() const { return measured - predicted; }
  /// 0.1: the run took 10 % longer. Nothing if nothing was predicted.
  std::optional<double> relative() const {
    return predicted > 0 ? std::optional(difference() / predicted) : std::nullopt;
  }
};

/// One operation on the devices that do the same in both traces.
struct ComparedOperation {
  std::vector<int> devices;
  int op = 0;
  std::string stream, kind;
  Compared start;     // from the start of its step
  Compared duration;  // both carry the operation's name
};

/// Means over the steps of a trace; totals are means over the devices that both traces have.
struct TraceComparison {
  std::string model, plan;
  int devices = 0;
  int predicted_steps = 1, measured_steps = 1;
  Compared step;
  std::vector<Compared> kinds, passes, streams;                // by name
  std::vector<ComparedOperation> absolute, relative;           // that differ most, most first
  std::optional<ComparedOperation> divergence;                 // the first to end much too early or too late
  int64_t matched = 0, only_predicted = 0, only_measured = 0;  // operations, counted once per device
};

struct CompareOptions {
  size_t most = 10;             // operations in each list
  double divergence = 0.01;     // of the predicted step: how far off an end is much
  double worth_a_look = 0.001;  // of the predicted step: shorter operations are not in the relative list
};

/// E504: the traces are not of one plan.
Result<TraceComparison> compare(const Trace& predicted, const Trace& measured, const CompareOptions& options = {});

/// Tables for people.
std::string print(const TraceComparison& comparison);
/// For machines; docs/trace.md has the fields.
std::string print_json(const TraceComparison& comparison);

}  // namespace piper
