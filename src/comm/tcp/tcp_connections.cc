#include "comm/tcp/tcp_connections.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "comm/communicator.h"
#include "comm/tcp/tcp_address.h"

namespace piper {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto longest_hello = std::chrono::seconds(5);  // between somebody's coming in and saying who it is

/// The first bytes of a connection.
struct Hello {
  char protocol[8] = "piper 1";
  uint64_t secret = 0;
  int32_t rank = 0, ranks = 0;
};

/// Blocking calls on the socket end after this time.
void limit_calls(const Socket& socket, std::chrono::milliseconds time) {
  const auto limit = std::max<int64_t>(time.count(), 1);
  const timeval value{.tv_sec = limit / 1000, .tv_usec = limit % 1000 * 1000};
  for (const int what : {SO_SNDTIMEO, SO_RCVTIMEO}) setsockopt(socket.number(), SOL_SOCKET, what, &value, sizeof value);
}

std::chrono::milliseconds until(Clock::time_point deadline) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
}

Socket go_to(int rank, const std::string& address, Hello hello, Clock::time_point deadline) {
  std::istringstream in(address);
  std::string host;
  int port = 0;
  in >> host >> port >> hello.secret;
  const Resolved place = resolve(host, port);
  Socket out(::socket(place.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  limit_calls(out, until(deadline));
  if (!out.is_open() || connect(out.number(), place.get(), place.length) != 0 ||
      ::send(out.number(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
    throw CommunicationError("rank " + std::to_string(rank) + " cannot be reached at " + host + ": " +
                             (errno == EINPROGRESS || errno == EAGAIN ? "no answer" : std::strerror(errno)));
  return out;
}

/// Nothing where whoever came is not one of the job.
Socket let_in(const TcpDoor& door, Hello& hello) {
  Socket out(accept4(door.socket().number(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!out.is_open()) return {};
  limit_calls(out, longest_hello);
  const bool came = recv(out.number(), &hello, sizeof hello, MSG_WAITALL) == sizeof hello;
  return came && std::memcmp(hello.protocol, Hello().protocol, sizeof hello.protocol) == 0 &&
                 hello.secret == door.secret()
             ? std::move(out)
             : Socket();
}

}  // namespace

std::vector<Socket> connect_all(int rank, const TcpDoor& door, const std::vector<std::string>& doors,
                                std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  const auto ranks = static_cast<int>(doors.size());
  std::vector<Socket> out(doors.size());
  for (int to = 0; to < rank; ++to)
    out[static_cast<size_t>(to)] = go_to(to, doors[static_cast<size_t>(to)], {.rank = rank, .ranks = ranks}, deadline);
  for (int missing = ranks - 1 - rank; missing > 0;) {
    pollfd coming{.fd = door.socket().number(), .events = POLLIN, .revents = 0};
    const auto left = until(deadline);
    if (left.count() <= 0 || poll(&coming, 1, static_cast<int>(left.count())) == 0) {
      const auto first = std::find_if(out.begin() + rank + 1, out.end(), [](const Socket& s) { return !s.is_open(); });
      throw CommunicationError("rank " + std::to_string(first - out.begin()) + " does not come");
    }
    Hello hello;
    Socket come = let_in(door, hello);
    if (!come.is_open() || hello.rank <= rank || hello.rank >= ranks || hello.ranks != ranks) continue;
    missing -= out[static_cast<size_t>(hello.rank)].is_open() ? 0 : 1;
    out[static_cast<size_t>(hello.rank)] = std::move(come);
  }
  for (const Socket& socket : out) {
    if (!socket.is_open()) continue;
    const int yes = 1;
    setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(socket.number(), F_SETFL, fcntl(socket.number(), F_GETFL) | O_NONBLOCK);
  }
  return out;
}

}  // namespace piper
