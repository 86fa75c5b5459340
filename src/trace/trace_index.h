// Finds the event of an operation.
#pragma once

#include <vector>

#include "trace/trace.h"

namespace piper {

class TraceIndex {
 public:
  explicit TraceIndex(const std::vector<TraceEvent>& events);

  /// Into the events, or -1.
  int find(int step, int lane, int op) const;
  /// Two events of one operation, lane and step; none: both -1.
  struct Twice {
    int first = -1, second = -1;
  };
  Twice twice() const;

 private:
  struct Entry {
    int step, lane, op, event;
  };
  std::vector<Entry> entries_;  // sorted
};

}  // namespace piper
