// What happened when, on which device and stream. The simulator and the runtime write the same format; the timeline
// page and `trace diff` read it.
//
// A lane is a set of devices that did the same at the same time; measured traces have one device per lane. Events of a
// lane stand in the order in which its plan issues them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace piper {

/// What an event waited for last before it started.
struct TraceCause {
  int lane = -1;  // -1: nothing but the host that issued it
  int op = -1;
  friend bool operator==(const TraceCause&, const TraceCause&) = default;
};

struct TraceEvent {
  int lane = 0;
  int stream = 0;             // into Trace::streams
  int op = 0;                 // number of the operation in the plan of the lane's devices
  std::string name;           // what it is about: layer.3.attention F mb=2
  std::string kind;           // run, send, recv, all_reduce, …, update
  std::string pass;           // F, B, BI, BW, R; empty for what belongs to no pass
  int slice = -1;             // of the batch; -1: the whole step
  double start = 0, end = 0;  // seconds from the start of the trace
  int64_t bytes = 0;          // of a communication, on one device
  int origin = -1;            // into Trace::origins: the schedule line behind it
  std::vector<int> waits;     // operations of the same lane that its plan makes it wait for
  TraceCause cause;
  int step = 0;  // into Trace::steps
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

struct TraceOrigin {
  std::string place;  // file:line
  std::string text;   // the directive
  friend bool operator==(const TraceOrigin&, const TraceOrigin&) = default;
};

/// Bytes alive on one device of a lane from a moment on, by category.
struct TraceMemory {
  int lane = 0;
  double time = 0;
  std::vector<int64_t> bytes;  // as Trace::categories
  friend bool operator==(const TraceMemory&, const TraceMemory&) = default;
};

struct TraceStep {
  int64_t number = 0;  // of the training, from 0
  double start = 0, end = 0;
  friend bool operator==(const TraceStep&, const TraceStep&) = default;
};

struct Trace {
  std::string source;  // simulated, measured
  std::string model, cluster;
  std::string plan;                     // its hash
  double seconds = 0;                   // from its start to its end
  std::vector<std::vector<int>> lanes;  // devices
  std::vector<std::string> streams, categories;
  std::vector<TraceOrigin> origins;
  std::vector<TraceEvent> events;
  std::vector<TraceMemory> memory;
  std::vector<TraceStep> steps;   // empty: one, from 0 to `seconds`
  int64_t tokens = 0;             // of a step; 0: not known
  std::vector<int64_t> capacity;  // bytes of a device of every lane; empty: not known
  friend bool operator==(const Trace&, const Trace&) = default;
};

}  // namespace piper
