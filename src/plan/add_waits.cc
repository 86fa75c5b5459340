#include "plan/add_waits.h"

#include <algorithm>

#include "plan/byte_pool.h"
#include "plan/stream_clocks.h"

namespace piper {
namespace {

class Waiter {
 public:
  Waiter(const Plan& plan, PlanTemplate& of)
      : plan_(plan), of_(of), clocks_(plan, of), users_(of.buffers.size()), last_write_(of.buffers.size(), -1), pool_(0) {}

  void run(std::vector<std::vector<int>>& required) {
    const IssueOrderUse use = issue_order_use(of_);
    pool_ = BytePool(use.peak - use.persistent);
    const auto takes = first_touches(of_);
    for (size_t i = 0; i < of_.ops.size(); ++i) {
      const int op = static_cast<int>(i);
      clocks_.begin(op);
      std::vector<int> before = std::move(required[i]);
      add_conflicts(op, before);
      std::sort(before.begin(), before.end(), std::greater<>());  // the latest imply the earlier ones
      for (const int earlier : before) wait(op, earlier);
      take_memory(op, takes[i]);
      note_uses(op);
    }
  }

 private:
  void wait(int op, int earlier) {
    if (clocks_.knows(op, earlier)) return;
    of_.ops[static_cast<size_t>(op)].waits.push_back(earlier);
    clocks_.merge(op, earlier);
  }

  /// Readers come after the last writer, writers after everyone since.
  void add_conflicts(int op, std::vector<int>& before) const {
    const PlannedOp& self = of_.ops[static_cast<size_t>(op)];
    for (const int b : self.reads)
      if (last_write_[static_cast<size_t>(b)] >= 0) before.push_back(last_write_[static_cast<size_t>(b)]);
    for (const int b : self.writes) {
      const auto& users = users_[static_cast<size_t>(b)];
      before.insert(before.end(), users.begin(), users.end());
    }
  }

  void take_memory(int op, const std::vector<int>& takes) {
    PlannedOp& self = of_.ops[static_cast<size_t>(op)];
    int64_t bytes = self.temporaries;
    for (const int b : takes) bytes += of_.buffers[static_cast<size_t>(b)].bytes;
    if (bytes == 0) return;
    const auto knows = [&](int earlier) { return clocks_.knows(op, earlier); };
    for (auto missing = pool_.missing(bytes, knows); !missing.empty(); missing = pool_.missing(bytes, knows)) {
      std::sort(missing.begin(), missing.end(), std::greater<>());
      for (const int earlier : missing) wait(op, earlier);
    }
    pool_.take(bytes, knows);
  }

  /// The last use of a buffer on every stream; what is freed goes back with them.
  void note_uses(int op) {
    const PlannedOp& self = of_.ops[static_cast<size_t>(op)];
    const auto use = [&](int b) {
      auto& users = users_[static_cast<size_t>(b)];
      std::erase_if(users, [&](int u) { return of_.ops[static_cast<size_t>(u)].stream == self.stream; });
      users.push_back(op);
    };
    for (const int b : self.reads) use(b);
    for (const int b : self.writes) {
      use(b);
      last_write_[static_cast<size_t>(b)] = op;
    }
    pool_.give_back({self.temporaries, {op}});
    for (const int b : self.frees) pool_.give_back({of_.buffers[static_cast<size_t>(b)].bytes, users_[static_cast<size_t>(b)]});
  }

  const Plan& plan_;
  PlanTemplate& of_;
  StreamClocks clocks_;
  std::vector<std::vector<int>> users_;  // by buffer: its last user on every stream
  std::vector<int> last_write_;
  BytePool pool_;
};

}  // namespace

void add_waits(const Plan& plan, PlanTemplate& of, std::vector<std::vector<int>> required) { Waiter(plan, of).run(required); }

}  // namespace piper
