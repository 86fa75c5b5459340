// Processes that MPI has started, on any number of hosts, each with some of the devices.
//
// One thread per process, the engine, makes all calls of MPI: computation never waits for progress, and waiting uses
// little of a core. Calls may come from any thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace piper {

/// The devices of a process: blocks as even as possible, the larger ones first.
struct DeviceBlock {
  int first = 0, count = 0;
};
DeviceBlock devices_of(int rank, int ranks, int devices);
int rank_of(int device, int ranks, int devices);

/// How many processes the launcher says it started, from the environment; none: started by no launcher that is known.
/// More than `MpiWorld::ranks`: the launcher belongs to another MPI than this program.
std::optional<int> launched_ranks();

/// The newest that a process has told about itself.
struct Heard {
  std::string block;                           // empty: nothing yet
  std::chrono::steady_clock::time_point when;  // it came; nothing yet: when the job was joined
};

/// This process among the others. One per process: MPI is initialised and finalised with it, unless it is already.
class MpiWorld {
 public:
  /// Returns when all processes have joined. Throws CommunicationError.
  MpiWorld();
  /// Waits a moment for the others to leave too.
  ~MpiWorld();

  int rank() const;
  int ranks() const;
  /// Of MPI, in one line.
  const std::string& library() const;

  /// The communicators of this process's devices. All processes make the same worlds in the same order. A call of them
  /// fails when nothing of it has moved for as long as `patience`.
  std::vector<std::unique_ptr<Communicator>> make(int devices, std::chrono::milliseconds patience);

  /// The bytes that rank 0 gives, on every rank.
  std::string broadcast(std::string bytes, std::chrono::milliseconds patience);
  /// At rank 0 the bytes of every rank, none of those that did not come in time; elsewhere nothing. All ranks make the
  /// same calls of `broadcast` and of `gather` in the same order.
  std::vector<std::optional<std::string>> gather(const std::string& bytes, std::chrono::milliseconds patience);

  enum class To { RankZero, Everybody };
  /// Tells others a small block about this process. Never waits: a block that is not on its way yet is replaced.
  void post(std::string block, To to);
  /// By rank; of this process what it posted last.
  std::vector<Heard> heard() const;

  /// Ends all processes of the job at once, with this code.
  [[noreturn]] void end_everywhere(int code);

 private:
  std::shared_ptr<class Engine> engine_;
  int worlds_ = 0, broadcasts_ = 0, gathers_ = 0;
};

}  // namespace piper
