#include "train/devices/join_tcp.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "comm/processes/launcher.h"
#include "comm/processes/process_world.h"
#include "comm/tcp/tcp_transport.h"

namespace piper {
namespace {

constexpr int launcher_gone_code = 3;

void end_alone() {
  std::fputs("piper: what has started this process is gone, or goes on without it; it ends too\n", stderr);
  std::fflush(nullptr);
  std::_Exit(launcher_gone_code);
}

void take_signal(int signal) {
  kill(getpid(), signal);
}

}  // namespace

Result<std::unique_ptr<TcpRendezvous>> find_rendezvous() {
  const char* const where = std::getenv(rendezvous_variable);
  const std::optional<int> number = launched_rank();
  if (!where || !number)
    return error(ErrorCode::E805, {}, "nobody has told this process where the others are")
        .help("start the job with piper launch over TCP");
  try {
    return std::make_unique<TcpRendezvous>(*number, where, TcpRendezvous::Heard{end_alone, take_signal});
  } catch (const CommunicationError& problem) {
    return error(ErrorCode::E805, {}, problem.what()).help("start the job with piper launch over TCP");
  }
}

Result<JoinedEpoch> join_tcp(TcpRendezvous& rendezvous, std::chrono::milliseconds timeout, int attempts, int64_t done) {
  while (true) {
    try {
      JoinedEpoch out{.world = nullptr, .epoch = rendezvous.come(done), .agreed = std::chrono::steady_clock::now()};
      const TcpRendezvous::Epoch& epoch = out.epoch;
      out.world = std::make_unique<ProcessWorld>(
          [&] { return make_tcp_transport(epoch.rank, rendezvous.door(), epoch.doors, timeout, epoch.number); });
      return out;
    } catch (const CommunicationError& problem) {
      if (attempts-- > 0 && !dynamic_cast<const RendezvousClosed*>(&problem)) continue;
      return error(ErrorCode::E805, {}, fmt::format("the processes do not come together: {}", problem.what()))
          .help("check that all of them are alive; --timeout gives them more time");
    }
  }
}

}  // namespace piper
