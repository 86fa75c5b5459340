// Memory in issue order: bytes are taken and returned as operations are issued, and an operation that takes bytes last used
// on another stream must know that this use has ended. Only then is the peak a property of the plan.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "plan/plan.h"
#include "plan/stream_clocks.h"

namespace piper {

/// Bytes that were returned, and the last operation on every stream that used them.
struct ReturnedBytes {
  int64_t bytes = 0;
  std::vector<int> last_uses;
};

class BytePool {
 public:
  explicit BytePool(int64_t fresh) : fresh_(fresh) {}

  /// What `op` would still have to wait for to take so many bytes; nothing: it may take them now.
  /// `knows(earlier)` says whether it knows that an operation has ended.
  std::vector<int> missing(int64_t bytes, const std::function<bool(int)>& knows) const;
  /// Takes them. Nothing may be missing.
  void take(int64_t bytes, const std::function<bool(int)>& knows);
  void give_back(ReturnedBytes returned) { if (returned.bytes > 0) returned_.push_back(std::move(returned)); }

 private:
  int64_t fresh_;
  std::deque<ReturnedBytes> returned_;  // oldest first
};

/// Bytes alive when each operation is issued, its own included: the curve whose top is the peak.
struct IssueOrderUse {
  int64_t persistent = 0;
  int64_t peak = 0;
  int peak_op = -1;
};
IssueOrderUse issue_order_use(const PlanTemplate& of);

/// For each operation: the buffers it touches first.
std::vector<std::vector<int>> first_touches(const PlanTemplate& of);

}  // namespace piper
