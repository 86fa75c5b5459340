#include "plan/add_waits.h"

#include <algorithm>

#include "plan/issue_order_memory.h"
#include "plan/stream_clocks.h"

namespace piper {
namespace {

class Waiter {
 public:
  Waiter(const Plan& plan, PlanTemplate& of)
      : of_(of), clocks_(plan, of), memory_(plan, of, clocks_), last_write_(of.buffers.size(), -1) {}

  void run(const std::vector<std::vector<int>>& required) {
    for (size_t i = 0; i < of_.ops.size(); ++i) {
      const int op = static_cast<int>(i);
      clocks_.begin(op);
      std::vector<int> before = required[i];
      add_conflicts(op, before);
      wait_all(op, before);
      for (auto missing = memory_.missing(op); !missing.empty(); missing = memory_.missing(op)) wait_all(op, missing);
      drop_implied(op);
      memory_.issue(op);
      for (const int b : of_.ops[i].writes) last_write_[static_cast<size_t>(b)] = op;
    }
  }

 private:
  /// The latest first: they imply earlier ones.
  void wait_all(int op, std::vector<int>& before) {
    std::sort(before.begin(), before.end(), std::greater<>());
    for (const int earlier : before) {
      if (clocks_.knows(op, earlier)) continue;
      of_.ops[static_cast<size_t>(op)].waits.push_back(earlier);
      clocks_.merge(op, earlier);
    }
  }

  /// A later wait may imply one that was added before it.
  void drop_implied(int op) {
    auto& waits = of_.ops[static_cast<size_t>(op)].waits;
    const std::vector<int> all = waits;
    std::erase_if(waits, [&](int w) {
      return std::any_of(all.begin(), all.end(), [&](int other) { return other > w && clocks_.knows(other, w); });
    });
  }

  /// Readers come after the last writer, writers after everyone since.
  void add_conflicts(int op, std::vector<int>& before) const {
    const PlannedOp& self = of_.ops[static_cast<size_t>(op)];
    for (const int b : self.reads)
      if (last_write_[static_cast<size_t>(b)] >= 0) before.push_back(last_write_[static_cast<size_t>(b)]);
    for (const int b : self.writes)
      for (const int user : memory_.last_users(b))
        if (user >= 0) before.push_back(user);
  }

  PlanTemplate& of_;
  StreamClocks clocks_;
  IssueOrderMemory memory_;
  std::vector<int> last_write_;
};

}  // namespace

void add_waits(const Plan& plan, PlanTemplate& of, const std::vector<std::vector<int>>& required) {
  Waiter(plan, of).run(required);
}

}  // namespace piper
