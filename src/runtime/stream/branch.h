// More streams beside the one on which a thread computes: for work that nobody waits for soon.
#pragma once

#include <cstddef>
#include <functional>

namespace piper {

class Branch {
 public:
  virtual ~Branch() = default;
  /// What is put on one of them runs in order, beside what is put on others.
  static constexpr size_t lanes = 2;
  /// What the calling thread has put on its stream by now is called so, until the same number is used again.
  virtual void mark(size_t number) = 0;
  /// Puts work on a lane. It begins when all has ended that was marked so, and what is on the lane already.
  virtual void launch(size_t lane, size_t after, const std::function<void()>& work) = 0;
  /// What the calling thread puts on its stream from now on begins when all lanes have ended.
  virtual void join() = 0;
};

}  // namespace piper
