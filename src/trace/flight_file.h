// What the devices of one process did last, written when a job fails: every process that still can writes its own file,
// and `piper trace flight` puts them on one timeline.
//
// A line of JSON for the process, then one for every operation. docs/trace.md has the fields.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/trace.h"

namespace piper {

/// Seconds of the clock of the job's first process.
struct FlightEvent {
  int device = 0;
  int64_t step = 0;
  int op = 0;  // number in the plan of the device
  std::string stream, kind, name, pass;
  int slice = -1;
  std::string place, directive;  // the schedule line behind it
  double started = 0, ended = 0;
  bool in_progress = false;  // `ended` is when the file was written
  friend bool operator==(const FlightEvent&, const FlightEvent&) = default;
};

struct FlightFile {
  int rank = 0;
  std::string host, model, plan;  // the hash of the plan
  std::string reason;             // why it was written
  double written = 0;
  double clock_error = 0;  // seconds that its clock may be off the first process's
  std::vector<FlightEvent> events;
  friend bool operator==(const FlightFile&, const FlightFile&) = default;
};

std::string print(const FlightFile& file);
/// E106: no JSON; E501: JSON, but no such file; E502: of another version; E503: something in it cannot be.
Result<FlightFile> parse_flight_file(const SourceFilePtr& file);

/// The last operations of every device and all that are in progress, the oldest first, and when they were in relation
/// to the last that is known.
std::string describe(const std::vector<FlightFile>& files, size_t operations);
/// All of them on one timeline. E503 if they are not of one job.
Result<Trace> as_trace(const std::vector<FlightFile>& files);

}  // namespace piper
