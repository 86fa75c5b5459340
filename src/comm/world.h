// The processes that run a job together, on any number of hosts, each with some of the devices.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace piper {

/// The last heartbeat of a process.
struct PeerHeartbeat {
  std::string block;                           // what it posted; empty: nothing yet
  std::chrono::steady_clock::time_point when;  // of the last message of any kind; none yet: when the job was joined
};

/// One process's view of the job. All members may be called from any thread.
class World {
 public:
  virtual ~World() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// The library that carries messages, with its version.
  virtual const std::string& library() const = 0;

  /// The communicators of this process's devices. All processes make the same ones in the same order. Their calls
  /// fail when they have made no progress for `timeout`.
  virtual std::vector<std::unique_ptr<Communicator>> make(int devices, std::chrono::milliseconds timeout) = 0;

  /// Returns the bytes of rank 0 on every rank.
  virtual std::string broadcast(std::string bytes, std::chrono::milliseconds timeout) = 0;
  /// Returns at rank 0 the bytes of every rank, or nothing for a rank that did not respond in time; elsewhere an empty
  /// list. All ranks call `broadcast` and `gather` in the same order.
  virtual std::vector<std::optional<std::string>> gather(const std::string& bytes,
                                                         std::chrono::milliseconds timeout) = 0;

  enum class To { RankZero, Everybody };
  /// Sends a small block about this process. Never waits: a block that was not sent yet is replaced.
  virtual void post(std::string block, To to) = 0;
  /// By rank; for this process, what it posted last.
  virtual std::vector<PeerHeartbeat> heartbeats() const = 0;
  /// Grows while messages of this process make progress; posted blocks do not count.
  virtual int64_t moved() const = 0;

  /// Ranks that have left without a goodbye, as far as is known here. Once there is one, nothing is carried any more.
  virtual std::vector<int> lost() const = 0;
  /// Leaves the others at once, for some of them are gone: all calls fail from now on, and the others notice that
  /// nothing comes from here. The process may join others in another world.
  virtual void leave() = 0;
  /// Ends all processes of the job at once, with this code.
  [[noreturn]] virtual void end_everywhere(int code) = 0;
};

}  // namespace piper
