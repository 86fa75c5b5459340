// Where a job in several processes begins that need no MPI.
#pragma once

#include <chrono>
#include <memory>

#include "base/result.h"
#include "comm/tcp/tcp_rendezvous.h"
#include "comm/world.h"

namespace piper {

/// Where the processes meet that `piper launch --backend tcp` has started. E805: it has not started this one.
Result<std::unique_ptr<TcpRendezvous>> find_rendezvous();

struct JoinedEpoch {
  std::unique_ptr<World> world;
  TcpRendezvous::Epoch epoch;
  std::chrono::steady_clock::time_point agreed;  // when the epoch began
};
/// This process among those of the next epoch. E805: the rendezvous is closed, or somebody cannot be reached while
/// `timeout` lasts. That may be because it was lost meanwhile: so many further `attempts` are made. `done`: as for
/// `TcpRendezvous::come`.
Result<JoinedEpoch> join_tcp(TcpRendezvous& rendezvous, std::chrono::milliseconds timeout, int attempts, int64_t done);

}  // namespace piper
