// Memory in issue order: bytes are allocated and freed as operations are issued, and an operation that reuses bytes
// from another stream must know that their last use has ended. Only then is the peak a property of the plan.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "plan/stream_clocks.h"

namespace piper {

/// For each operation: the buffers it is the first to touch, and so allocates.
class FirstTouches {
 public:
  explicit FirstTouches(const PlanTemplate& of);
  std::span<const BufferId> of(OpId op) const {
    return {buffers_.data() + offsets_[op.index()], buffers_.data() + offsets_[op.index() + 1]};
  }

 private:
  std::vector<size_t> offsets_;
  std::vector<BufferId> buffers_;
};

/// Live bytes as operations are issued: at the start, and at the peak.
struct IssueOrderUse {
  int64_t persistent = 0;
  int64_t peak = 0;
  OpId peak_op;
};
IssueOrderUse issue_order_use(const PlanTemplate& of, const FirstTouches& touches);
IssueOrderUse issue_order_use(const PlanTemplate& of);

/// Simulates the memory pool of one device. The pool has the size of the peak from the start; freed bytes are reused,
/// the oldest first, by operations that know that their last users have ended.
class IssueOrderMemory {
 public:
  IssueOrderMemory(const Plan& plan, const PlanTemplate& of, const StreamClocks& clocks);

  /// Operations that `op` still has to wait for before it may allocate. Ask again after waiting.
  std::vector<OpId> missing(OpId op) const;
  /// Issues it: allocates (nothing may be missing), records its uses, frees what it frees.
  void issue(OpId op);
  /// Last user of a buffer on every stream, if it has one.
  std::span<const OpId> last_users(BufferId buffer) const {
    return {last_users_.data() + buffer.index() * streams_, streams_};
  }

 private:
  struct Returned {
    int64_t bytes;
    BufferId buffer;
  };
  bool knows_free(OpId op, const Returned& returned) const;
  int64_t wanted(OpId op) const;
  void take(OpId op, int64_t bytes);

  const PlanTemplate& of_;
  const StreamClocks& clocks_;
  FirstTouches touches_;
  size_t streams_;
  std::vector<OpId> last_users_;  // by buffer and stream
  int64_t fresh_;
  std::deque<Returned> returned_;  // oldest first
};

}  // namespace piper
