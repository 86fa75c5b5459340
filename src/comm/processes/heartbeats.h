// Heartbeats: the newest block that every process has told about itself, and when anything came from it.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/processes/transport.h"
#include "comm/world.h"

namespace piper {

class Heartbeats {
 public:
  explicit Heartbeats(Transport& transport);

  /// From any thread. By rank.
  std::vector<PeerHeartbeat> all() const;
  void set_own(std::string block);

  // The polling thread only.

  /// A block that is not on its way yet is replaced: at most one is, to each rank.
  void post(const std::string& block, World::To to);
  /// The last heartbeat to this rank is on its way.
  void sent(int to);
  /// `sequence`: counts the posts of the sender. Older ones than the newest are ignored.
  void came(int from, int64_t sequence, std::string block);
  /// Anything came from it.
  void is_alive(int rank);

 private:
  using Clock = std::chrono::steady_clock;
  struct Outgoing {
    std::optional<std::string> next;
    bool sending = false;
  };
  void send_next(int to);

  Transport& transport_;
  const int rank_, ranks_;
  int64_t posts_ = 0;
  std::vector<Outgoing> outgoing_;
  std::vector<int64_t> newest_;  // sequence number, by rank

  mutable std::mutex mutex_;
  std::vector<PeerHeartbeat> heard_;
};

}  // namespace piper
