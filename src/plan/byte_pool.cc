#include "plan/byte_pool.h"

#include <algorithm>

#include "base/invariant.h"
#include "base/saturate.h"

namespace piper {
namespace {

/// How far behind the oldest returned bytes to look for some that are known to be free.
constexpr size_t window = 64;

bool known(const ReturnedBytes& entry, const std::function<bool(int)>& knows) {
  return std::all_of(entry.last_uses.begin(), entry.last_uses.end(), knows);
}

}  // namespace

std::vector<int> BytePool::missing(int64_t bytes, const std::function<bool(int)>& knows) const {
  bytes -= std::min(bytes, fresh_);
  for (size_t i = 0; bytes > 0 && i < std::min(window, returned_.size()); ++i)
    if (known(returned_[i], knows)) bytes -= returned_[i].bytes;
  if (bytes <= 0) return {};
  for (const ReturnedBytes& entry : returned_) {
    if (known(entry, knows)) continue;
    std::vector<int> waits;
    std::copy_if(entry.last_uses.begin(), entry.last_uses.end(), std::back_inserter(waits), [&](int op) { return !knows(op); });
    return waits;
  }
  // everything that was returned is known to be free, but stands behind the window
  return {};
}

void BytePool::take(int64_t bytes, const std::function<bool(int)>& knows) {
  const int64_t from_fresh = std::min(bytes, fresh_);
  fresh_ -= from_fresh;
  bytes -= from_fresh;
  for (size_t i = 0; bytes > 0 && i < returned_.size();) {
    ReturnedBytes& entry = returned_[i];
    if (!known(entry, knows)) {
      ++i;
      continue;
    }
    const int64_t part = std::min(bytes, entry.bytes);
    entry.bytes -= part;
    bytes -= part;
    if (entry.bytes == 0)
      returned_.erase(returned_.begin() + static_cast<long>(i));
    else
      ++i;
  }
  invariant(bytes == 0, "bytes are taken only when there are enough of them");
}

std::vector<std::vector<int>> first_touches(const PlanTemplate& of) {
  std::vector<std::vector<int>> takes(of.ops.size());
  std::vector<char> taken(of.buffers.size(), 0);
  for (size_t b = 0; b < of.buffers.size(); ++b) taken[b] = of.buffers[b].persistent;
  for (size_t i = 0; i < of.ops.size(); ++i) {
    for (const auto* list : {&of.ops[i].reads, &of.ops[i].writes}) {
      for (const int b : *list) {
        if (taken[static_cast<size_t>(b)]) continue;
        taken[static_cast<size_t>(b)] = 1;
        takes[i].push_back(b);
      }
    }
  }
  return takes;
}

IssueOrderUse issue_order_use(const PlanTemplate& of) {
  IssueOrderUse use;
  for (const PlanBuffer& buffer : of.buffers)
    if (buffer.persistent) use.persistent = saturating_add(use.persistent, buffer.bytes);
  const auto takes = first_touches(of);
  int64_t live = use.persistent;
  use.peak = live;
  for (size_t i = 0; i < of.ops.size(); ++i) {
    for (const int b : takes[i]) live = saturating_add(live, of.buffers[static_cast<size_t>(b)].bytes);
    const int64_t now = saturating_add(live, of.ops[i].temporaries);
    if (now > use.peak || use.peak_op < 0) {
      use.peak = std::max(use.peak, now);
      use.peak_op = static_cast<int>(i);
    }
    for (const int b : of.ops[i].frees) live -= of.buffers[static_cast<size_t>(b)].bytes;
  }
  return use;
}

}  // namespace piper
