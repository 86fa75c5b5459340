// Vector clocks: what is known to have ended before an operation starts, from the device's own streams and waits alone.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/plan.h"

namespace piper {

/// A place in a stream: all operations before it have ended.
struct StreamPoint {
  PlanStreamId stream;
  int position = 0;  // operations of the stream up to and including the one meant
};

/// One clock per operation, filled in issue order.
class StreamClocks {
 public:
  StreamClocks(const Plan& plan, const PlanTemplate& of)
      : streams_(plan.streams.size()),
        ops_(of.ops),
        point_(of.ops.size()),
        clock_(of.ops.size() * streams_, 0),
        last_(streams_),
        length_(streams_, 0) {}

  /// The next operation in issue order: after the one before it on its stream.
  void begin(OpId op) {
    const PlanStreamId stream = ops_[op].stream;
    if (last_[stream].valid()) merge(op, last_[stream]);
    last_[stream] = op;
    point_[op] = {stream, ++length_[stream]};
  }
  /// `op` starts after `earlier` has ended.
  void merge(OpId op, OpId earlier) {
    for (const PlanStreamId s : last_.ids()) at(op, s) = std::max(at(op, s), at(earlier, s));
    const StreamPoint& point = point_[earlier];
    int& known = at(op, point.stream);
    known = std::max(known, point.position);
  }
  bool knows(OpId op, const StreamPoint& point) const {
    return clock_[op.index() * streams_ + point.stream.index()] >= point.position;
  }
  bool knows(OpId op, OpId earlier) const { return knows(op, point_[earlier]); }
  const StreamPoint& point(OpId op) const { return point_[op]; }

 private:
  int& at(OpId op, PlanStreamId stream) { return clock_[op.index() * streams_ + stream.index()]; }

  size_t streams_;
  const Table<OpId, PlannedOp>& ops_;
  Table<OpId, StreamPoint> point_;
  std::vector<int> clock_;  // by operation and stream
  Table<PlanStreamId, OpId> last_;
  Table<PlanStreamId, int> length_;
};

}  // namespace piper
