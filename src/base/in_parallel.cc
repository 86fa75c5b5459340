#include "base/in_parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace piper {

Checked in_parallel(size_t count, size_t threads, const std::function<Checked(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  std::optional<std::pair<size_t, Diagnostic>> first;
  const auto take = [&] {
    for (size_t i = next++; i < count && !failed; i = next++) {
      auto done = work(i);
      if (done) continue;
      failed = true;
      const std::lock_guard lock(mutex);
      if (!first || i < first->first) first.emplace(i, std::move(done.error()));
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < std::min(threads, count); ++i) others.emplace_back(take);
    take();
  }
  if (first) return std::move(first->second);
  return Ok{};
}

}  // namespace piper
