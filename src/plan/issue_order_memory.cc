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
  Table<BufferId, char> taken(of.buffers.size(), 0);
  for (const BufferId b : of.buffers.ids()) taken[b] = of.buffers[b].persistent;
  offsets_.reserve(of.ops.size() + 1);
  buffers_.reserve(of.buffers.size());
  offsets_.push_back(0);
  for (const PlannedOp& op : of.ops) {
    for (const auto* list : {&op.reads, &op.writes}) {
      for (const BufferId b : *list) {
        if (taken[b]) continue;
        taken[b] = 1;
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
  for (const OpId op : of.ops.ids()) {
    for (const BufferId b : touches.of(op)) live = saturating_add(live, of.buffers[b].bytes);
    if (live > use.peak || !use.peak_op.valid()) {
      use.peak = std::max(use.peak, live);
      use.peak_op = op;
    }
    for (const BufferId b : of.ops[op].frees) live -= of.buffers[b].bytes;
  }
  return use;
}

IssueOrderUse issue_order_use(const PlanTemplate& of) {
  return issue_order_use(of, FirstTouches(of));
}

IssueOrderMemory::IssueOrderMemory(const Plan& plan, const PlanTemplate& of, const StreamClocks& clocks)
    : of_(of), clocks_(clocks), touches_(of), streams_(plan.streams.size()), last_users_(of.buffers.size() * streams_) {
  const IssueOrderUse use = issue_order_use(of, touches_);
  fresh_ = use.peak - use.persistent;
}

bool IssueOrderMemory::knows_free(OpId op, const Returned& returned) const {
  for (const OpId user : last_users(returned.buffer))
    if (user.valid() && !clocks_.knows(op, user)) return false;
  return true;
}

int64_t IssueOrderMemory::wanted(OpId op) const {
  int64_t bytes = 0;
  for (const BufferId b : touches_.of(op)) bytes = saturating_add(bytes, of_.buffers[b].bytes);
  return bytes;
}

std::vector<OpId> IssueOrderMemory::missing(OpId op) const {
  int64_t bytes = wanted(op);
  bytes -= std::min(bytes, fresh_);
  for (size_t i = 0; bytes > 0 && i < std::min(window, returned_.size()); ++i)
    if (knows_free(op, returned_[i])) bytes -= returned_[i].bytes;
  if (bytes <= 0) return {};
  for (const Returned& returned : returned_) {
    if (knows_free(op, returned)) continue;
    std::vector<OpId> users;
    for (const OpId user : last_users(returned.buffer))
      if (user.valid() && !clocks_.knows(op, user)) users.push_back(user);
    return users;
  }
  return {};  // the rest stands behind the window
}

void IssueOrderMemory::take(OpId op, int64_t bytes) {
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

void IssueOrderMemory::issue(OpId op) {
  const PlannedOp& self = of_.ops[op];
  take(op, wanted(op));
  for (const auto* list : {&self.reads, &self.writes})
    for (const BufferId b : *list) last_users_[b.index() * streams_ + self.stream.index()] = op;
  for (const BufferId b : self.frees)
    if (of_.buffers[b].bytes > 0) returned_.push_back({of_.buffers[b].bytes, b});
}

}  // namespace piper
