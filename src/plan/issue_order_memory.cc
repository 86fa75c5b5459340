#include "plan/issue_order_memory.h"

#include <algorithm>

#include "base/invariant.h"
#include "base/saturate.h"

namespace piper {
namespace {

/// How far behind the oldest returned bytes to look for some that are known to be free.
constexpr size_t window = 64;

}  // namespace

FirstTouches::FirstTouches(const PlanTemplate& of) {
  std::vector<char> taken(of.buffers.size(), 0);
  for (size_t b = 0; b < of.buffers.size(); ++b) taken[b] = of.buffers[b].persistent;
  offsets_.reserve(of.ops.size() + 1);
  buffers_.reserve(of.buffers.size());
  offsets_.push_back(0);
  for (const PlannedOp& op : of.ops) {
    for (const auto* list : {&op.reads, &op.writes}) {
      for (const int b : *list) {
        if (taken[static_cast<size_t>(b)]) continue;
        taken[static_cast<size_t>(b)] = 1;
        buffers_.push_back(b);
      }
    }
    offsets_.push_back(buffers_.size());
  }
}

IssueOrderUse issue_order_use(const PlanTemplate& of, const FirstTouches& touches) {
  IssueOrderUse use;
  for (const PlanBuffer& buffer : of.buffers)
    if (buffer.persistent) use.persistent = saturating_add(use.persistent, buffer.bytes);
  int64_t live = use.persistent;
  use.peak = live;
  for (size_t i = 0; i < of.ops.size(); ++i) {
    for (const int b : touches.of(i)) live = saturating_add(live, of.buffers[static_cast<size_t>(b)].bytes);
    if (live > use.peak || use.peak_op < 0) {
      use.peak = std::max(use.peak, live);
      use.peak_op = static_cast<int>(i);
    }
    for (const int b : of.ops[i].frees) live -= of.buffers[static_cast<size_t>(b)].bytes;
  }
  return use;
}

IssueOrderUse issue_order_use(const PlanTemplate& of) {
  return issue_order_use(of, FirstTouches(of));
}

IssueOrderMemory::IssueOrderMemory(const Plan& plan, const PlanTemplate& of, const StreamClocks& clocks)
    : of_(of),
      clocks_(clocks),
      touches_(of),
      streams_(plan.streams.size()),
      last_users_(of.buffers.size() * streams_, -1) {
  const IssueOrderUse use = issue_order_use(of, touches_);
  fresh_ = use.peak - use.persistent;
}

bool IssueOrderMemory::knows_free(int op, const Returned& returned) const {
  for (const int user : last_users(returned.buffer))
    if (user >= 0 && !clocks_.knows(op, user)) return false;
  return true;
}

int64_t IssueOrderMemory::wanted(int op) const {
  int64_t bytes = 0;
  for (const int b : touches_.of(static_cast<size_t>(op)))
    bytes = saturating_add(bytes, of_.buffers[static_cast<size_t>(b)].bytes);
  return bytes;
}

std::vector<int> IssueOrderMemory::missing(int op) const {
  int64_t bytes = wanted(op);
  bytes -= std::min(bytes, fresh_);
  for (size_t i = 0; bytes > 0 && i < std::min(window, returned_.size()); ++i)
    if (knows_free(op, returned_[i])) bytes -= returned_[i].bytes;
  if (bytes <= 0) return {};
  for (const Returned& returned : returned_) {
    if (knows_free(op, returned)) continue;
    std::vector<int> users;
    for (const int user : last_users(returned.buffer))
      if (user >= 0 && !clocks_.knows(op, user)) users.push_back(user);
    return users;
  }
  return {};  // the rest stands behind the window
}

void IssueOrderMemory::take(int op, int64_t bytes) {
  const int64_t from_fresh = std::min(bytes, fresh_);
  fresh_ -= from_fresh;
  bytes -= from_fresh;
  for (size_t i = 0; bytes > 0 && i < returned_.size();) {
    Returned& returned = returned_[i];
    if (!knows_free(op, returned)) {
      ++i;
      continue;
    }
    const int64_t part = std::min(bytes, returned.bytes);
    returned.bytes -= part;
    bytes -= part;
    if (returned.bytes == 0) returned_.erase(returned_.begin() + static_cast<long>(i));
  }
  invariant(bytes == 0, "bytes are taken only when there are enough of them");
}

void IssueOrderMemory::issue(int op) {
  const PlannedOp& self = of_.ops[static_cast<size_t>(op)];
  take(op, wanted(op));
  for (const auto* list : {&self.reads, &self.writes})
    for (const int b : *list) last_users_[static_cast<size_t>(b) * streams_ + static_cast<size_t>(self.stream)] = op;
  for (const int b : self.frees)
    if (of_.buffers[static_cast<size_t>(b)].bytes > 0)
      returned_.push_back({of_.buffers[static_cast<size_t>(b)].bytes, b});
}

}  // namespace piper
