// The processes that run a job together, on any number of hosts, each with some of the devices.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace piper {

/// The newest that a process has told about itself.
struct PeerHeartbeat {
  std::string block;                           // empty: nothing yet
  std::chrono::steady_clock::time_point when;  // anything came from it; nothing yet: when the job was joined
};

/// This process among the others. All members may be called from any thread.
class World {
 public:
  virtual ~World() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// What carries messages, with its version.
  virtual const std::string& library() const = 0;

  /// The communicators of this process's devices. All processes make the same ones in the same order. A call of them
  /// fails when nothing of it has moved for as long as `timeout`.
  virtual std::vector<std::unique_ptr<Communicator>> make(int devices, std::chrono::milliseconds timeout) = 0;

  /// The bytes that rank 0 gives, on every rank.
  virtual std::string broadcast(std::string bytes, std::chrono::milliseconds timeout) = 0;
  /// At rank 0 the bytes of every rank, none of those that did not come in time; elsewhere nothing. All ranks make the
  /// same calls of `broadcast` and of `gather` in the same order.
  virtual std::vector<std::optional<std::string>> gather(const std::string& bytes,
                                                         std::chrono::milliseconds timeout) = 0;

  enum class To { RankZero, Everybody };
  /// Tells others a small block about this process. Never waits: a block that is not on its way yet is replaced.
  virtual void post(std::string block, To to) = 0;
  /// By rank; of this process what it posted last.
  virtual std::vector<PeerHeartbeat> heartbeats() const = 0;
  /// Grows while messages of this process move, blocks about processes aside.
  virtual int64_t moved() const = 0;

  /// Ends all processes of the job at once, with this code.
  [[noreturn]] virtual void end_everywhere(int code) = 0;
};

}  // namespace piper
