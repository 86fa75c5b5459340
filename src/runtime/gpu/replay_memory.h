// Memory whose addresses are the same in every step.
//
// A device takes and gives back the same memory in every step, operation by operation. It is watched in one step; then
// every piece gets its place in an arena of the stream on which it was taken, and is served from there. What is asked
// for unexpectedly comes from libtorch's own allocator, and is counted.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/shared_ids.h"

namespace piper {

class ReplayMemory {
 public:
  explicit ReplayMemory(size_t ops) : first_(ops + 1, 0) {}
  ~ReplayMemory();
  ReplayMemory(const ReplayMemory&) = delete;
  ReplayMemory& operator=(const ReplayMemory&) = delete;

  /// Of the calling thread: watches in the second step, serves from then on.
  void begin_step(int64_t step);
  void enter(OpId op);
  void leave();
  void end_step();

  bool serves() const { return mode_ == Mode::Serve; }
  int64_t arena_bytes() const { return arena_bytes_; }
  /// The most that was alive at once in the step that was watched.
  int64_t alive_bytes() const { return alive_bytes_; }
  /// What was asked for and is not in the arena.
  int64_t arena_misses() const { return arena_misses_; }
  /// How far the operation has come with what it asks for; it may go back, and ask again.
  size_t mark() const { return cursor_; }
  void go_back(size_t mark) { cursor_ = mark; }

  /// What the allocator calls on the thread of the device, which uses the stream; nothing: libtorch's own is asked.
  void* serve(size_t bytes, cudaStream_t stream);
  struct Watched;
  /// A piece begins; how it is known.
  std::shared_ptr<Watched> watch(size_t bytes);
  bool watches() const { return mode_ == Mode::Watch && op_.valid(); }
  bool owns(const void* data) const;
  static ReplayMemory* current();
  /// While it lives, what this thread takes is libtorch's own.
  class Aside {
   public:
    Aside();
    ~Aside();
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

   private:
    ReplayMemory* before_;
  };

  struct Watched {
    size_t bytes = 0;
    cudaStream_t stream = nullptr;
    int64_t begin = 0, end = -1;  // moments, in the order of issue; -1: it outlives the step
    int64_t* clock = nullptr;     // of the memory, while it watches
    size_t place = 0;             // in the arena of its stream
    void* address = nullptr;      // there
  };

 private:
  enum class Mode { Off, Watch, Serve };
  void plan();

  Mode mode_ = Mode::Off;
  OpId op_;
  size_t cursor_ = 0;
  int64_t clock_ = 0, arena_misses_ = 0, arena_bytes_ = 0, alive_bytes_ = 0;
  std::vector<size_t> first_;  // by operation: its first piece
  std::vector<std::shared_ptr<Watched>> pieces_;
  struct Arena {
    c10::DataPtr data;
    size_t bytes = 0;
  };
  std::map<cudaStream_t, Arena> arenas_;
};

/// Puts itself in front of libtorch's allocator, once.
void install_replay_allocator();

}  // namespace piper
