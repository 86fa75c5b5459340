// Memory in issue order: bytes are taken and returned as operations are issued, and an operation that takes bytes last
// used on another stream must know that this use has ended. Only then is the peak a property of the plan.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "plan/stream_clocks.h"

namespace piper {

/// For each operation: the buffers it touches first, and so takes.
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

/// The curve of bytes alive as operations are issued, each with its own included: its start and its top.
struct IssueOrderUse {
  int64_t persistent = 0;
  int64_t peak = 0;
  OpId peak_op;
};
IssueOrderUse issue_order_use(const PlanTemplate& of, const FirstTouches& touches);
IssueOrderUse issue_order_use(const PlanTemplate& of);

/// Follows the bytes of one device through its plan. All of the peak is there from the start; what is returned is
/// handed out again, the oldest first, to operations that know its last users to have ended.
class IssueOrderMemory {
 public:
  IssueOrderMemory(const Plan& plan, const PlanTemplate& of, const StreamClocks& clocks);

  /// Operations that `op` still has to wait for before it may take its bytes. Ask again after waiting.
  std::vector<OpId> missing(OpId op) const;
  /// Issues it: takes its bytes (nothing may be missing), notes its uses, returns what it frees.
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
