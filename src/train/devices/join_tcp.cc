#include "train/devices/join_tcp.h"

#include <fmt/format.h>

#include <cstdlib>

#include "comm/processes/launcher.h"
#include "comm/processes/process_world.h"
#include "comm/tcp/tcp_transport.h"

namespace piper {

Result<std::unique_ptr<TcpRendezvous>> find_rendezvous() {
  const char* const where = std::getenv(rendezvous_variable);
  const std::optional<int> number = launched_rank();
  if (!where || !number)
    return error(ErrorCode::E805, {}, "nobody has told this process where the others are")
        .help("start the job with piper launch over TCP");
  try {
    return std::make_unique<TcpRendezvous>(*number, where);
  } catch (const CommunicationError& problem) {
    return error(ErrorCode::E805, {}, problem.what()).help("start the job with piper launch over TCP");
  }
}

Result<std::unique_ptr<World>> join_tcp(TcpRendezvous& rendezvous, std::chrono::milliseconds timeout, int attempts) {
  while (true) {
    try {
      const TcpRendezvous::Epoch epoch = rendezvous.come();
      return std::unique_ptr<World>(std::make_unique<ProcessWorld>(
          [&] { return make_tcp_transport(epoch.rank, rendezvous.door(), epoch.doors, timeout, epoch.number); }));
    } catch (const CommunicationError& problem) {
      if (attempts-- > 0 && !dynamic_cast<const RendezvousClosed*>(&problem)) continue;
      return error(ErrorCode::E805, {}, fmt::format("the processes do not come together: {}", problem.what()))
          .help("check that all of them are alive; --timeout gives them more time");
    }
  }
}

}  // namespace piper
