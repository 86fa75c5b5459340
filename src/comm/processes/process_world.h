// Processes on any number of hosts, each with some of the devices, whatever carries their messages.
//
// One thread per process, the engine, makes all calls of the carrier: computation never waits for progress, and waiting
// uses little of a core. Calls may come from any thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/device_block.h"
#include "comm/processes/transport.h"
#include "comm/world.h"

namespace piper {

/// Somebody did not come in time, and the call that waits for it does not return: the process has to end.
struct NobodyCame : CommunicationError {
  using CommunicationError::CommunicationError;
};

/// This process among the others.
class ProcessWorld : public World {
 public:
  /// Returns when all processes have joined. Throws CommunicationError. `timeout`: for a `join` that may never return.
  explicit ProcessWorld(const MakeTransport& join, std::optional<std::chrono::milliseconds> timeout = {});
  /// Waits a moment for the others to leave too.
  ~ProcessWorld() override;

  int rank() const override;
  int ranks() const override;
  const std::string& library() const override;
  std::vector<std::unique_ptr<Communicator>> make(int devices, std::chrono::milliseconds timeout) override;
  std::string broadcast(std::string bytes, std::chrono::milliseconds timeout) override;
  std::vector<std::optional<std::string>> gather(const std::string& bytes, std::chrono::milliseconds timeout) override;
  void post(std::string block, To to) override;
  std::vector<PeerHeartbeat> heartbeats() const override;
  int64_t moved() const override;
  std::vector<int> lost() const override;
  void leave() override;
  [[noreturn]] void end_everywhere(int code) override;

 private:
  std::shared_ptr<class Engine> engine_;
  int worlds_ = 0, broadcasts_ = 0, gathers_ = 0;
};

}  // namespace piper
