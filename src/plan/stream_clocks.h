// What is known to have ended before an operation starts, from the device's own streams and waits alone.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/plan.h"

namespace piper {

/// A place in a stream: all operations before it have ended.
struct StreamPoint {
  int stream = 0;
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
        last_(streams_, -1),
        length_(streams_, 0) {}

  /// The next operation in issue order: after the one before it on its stream.
  void begin(int op) {
    const auto stream = static_cast<size_t>(ops_[static_cast<size_t>(op)].stream);
    if (last_[stream] >= 0) merge(op, last_[stream]);
    last_[stream] = op;
    point_[static_cast<size_t>(op)] = {static_cast<int>(stream), ++length_[stream]};
  }
  /// `op` starts after `earlier` has ended.
  void merge(int op, int earlier) {
    for (size_t s = 0; s < streams_; ++s) at(op, s) = std::max(at(op, s), at(earlier, s));
    const StreamPoint& point = point_[static_cast<size_t>(earlier)];
    int& known = at(op, static_cast<size_t>(point.stream));
    known = std::max(known, point.position);
  }
  bool knows(int op, const StreamPoint& point) const {
    return clock_[static_cast<size_t>(op) * streams_ + static_cast<size_t>(point.stream)] >= point.position;
  }
  bool knows(int op, int earlier) const { return knows(op, point_[static_cast<size_t>(earlier)]); }
  const StreamPoint& point(int op) const { return point_[static_cast<size_t>(op)]; }

 private:
  int& at(int op, size_t stream) { return clock_[static_cast<size_t>(op) * streams_ + stream]; }

  size_t streams_;
  const std::vector<PlannedOp>& ops_;
  std::vector<StreamPoint> point_;
  std::vector<int> clock_;
  std::vector<int> last_, length_;
};

}  // namespace piper
