#include "plan/add_waits.h"

#include <algorithm>

#include "plan/issue_order_memory.h"
#include "plan/stream_clocks.h"

namespace piper {
namespace {

class Waiter {
 public:
  Waiter(const Plan& plan, PlanTemplate& of)
      : of_(of), clocks_(plan, of), memory_(plan, of, clocks_), last_write_(of.buffers.size()) {}

  void run(const Table<OpId, std::vector<OpId>>& required) {
    for (const OpId op : of_.ops.ids()) {
      clocks_.begin(op);
      std::vector<OpId> before = required[op];
      add_conflicts(op, before);
      wait_all(op, before);
      for (auto missing = memory_.missing(op); !missing.empty(); missing = memory_.missing(op)) wait_all(op, missing);
      drop_implied(op);
      memory_.issue(op);
      for (const BufferId b : of_.ops[op].writes) last_write_[b] = op;
    }
  }

 private:
  /// The latest first: they imply earlier ones.
  void wait_all(OpId op, std::vector<OpId>& before) {
    std::sort(before.begin(), before.end(), std::greater<>());
    for (const OpId earlier : before) {
      if (clocks_.knows(op, earlier)) continue;
      of_.ops[op].waits.push_back(earlier);
      clocks_.merge(op, earlier);
    }
  }

  /// A later wait may imply one that was added before it.
  void drop_implied(OpId op) {
    auto& waits = of_.ops[op].waits;
    const std::vector<OpId> all = waits;
    std::erase_if(waits, [&](OpId w) {
      return std::any_of(all.begin(), all.end(), [&](OpId other) { return other > w && clocks_.knows(other, w); });
    });
  }

  /// Readers come after the last writer, writers after everyone since.
  void add_conflicts(OpId op, std::vector<OpId>& before) const {
    const PlannedOp& self = of_.ops[op];
    for (const BufferId b : self.reads)
      if (last_write_[b].valid()) before.push_back(last_write_[b]);
    for (const BufferId b : self.writes)
      for (const OpId user : memory_.last_users(b))
        if (user.valid()) before.push_back(user);
  }

  PlanTemplate& of_;
  StreamClocks clocks_;
  IssueOrderMemory memory_;
  Table<BufferId, OpId> last_write_;
};

}  // namespace

void add_waits(const Plan& plan, PlanTemplate& of, const Table<OpId, std::vector<OpId>>& required) {
  Waiter(plan, of).run(required);
}

}  // namespace piper
