// Side streams of the stream on which a thread computes, for work that nothing waits for soon.
#pragma once

#include <cstddef>
#include <functional>

namespace piper {

class Branch {
 public:
  virtual ~Branch() = default;
  /// Each runs its work in order, concurrently with the others.
  static constexpr size_t lanes = 2;
  /// Marks the calling thread's position in its stream with a number, until the number is used again.
  virtual void mark(size_t number) = 0;
  /// Launches work on a lane. It starts after everything up to the mark `after`, and after what is on the lane.
  virtual void launch(size_t lane, size_t after, const std::function<void()>& work) = 0;
  /// What the calling thread launches from now on starts after all lanes.
  virtual void join() = 0;
};

}  // namespace piper
