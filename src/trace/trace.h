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
  int op = -1;                 // that has just taken its bytes; -1: only what outlives the step is there
  friend bool operator==(const TraceMemory&, const TraceMemory&) = default;
};

/// A piece of memory of one device of a lane. Operations take and return memory in the order in which they are issued,
/// in every step the same, so times follow from the samples of TraceMemory.
struct TraceBuffer {
  int lane = 0;
  std::string name;  // whose it is: layer.3.attention.saved F mb=2
  int category = 0;  // into Trace::categories
  int64_t bytes = 0;
  int taken = -1, returned = -1;  // by this operation, after that one; both -1: it outlives the step

  /// When `op` has just taken its bytes.
  bool alive_at(int op) const { return taken < 0 || (taken <= op && op <= returned); }
  friend bool operator==(const TraceBuffer&, const TraceBuffer&) = default;
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
  std::vector<TraceBuffer> buffers;  // empty: not known
  std::vector<TraceStep> steps;      // empty: one, from 0 to `seconds`
  int64_t tokens = 0;                // of a step; 0: not known
  double seconds_at_peak = 0;        // of a step whose devices compute at their peak all the time; 0: not known
  std::vector<int64_t> capacity;     // bytes of a device of every lane; empty: not known
  friend bool operator==(const Trace&, const Trace&) = default;
};

}  // namespace piper
