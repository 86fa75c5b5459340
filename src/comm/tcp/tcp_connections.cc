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
#include <deque>

#include "comm/communicator.h"
#include "comm/tcp/tcp_address.h"

namespace piper {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto longest_hello = std::chrono::seconds(5);  // between somebody's coming in and saying who it is
constexpr auto look_for_leavers = std::chrono::milliseconds(50);
constexpr size_t most_guests = 256;  // that have not said it yet

/// The first bytes of a connection.
struct Hello {
  char protocol[8] = "piper 2";
  uint64_t secret = 0;
  int32_t rank = 0, ranks = 0, epoch = 0, unused = 0;
};

/// Blocking calls on the socket end after this time.
void limit_calls(const Socket& socket, std::chrono::milliseconds time) {
  const auto limit = std::max<int64_t>(time.count(), 1);
  const timeval value{.tv_sec = limit / 1000, .tv_usec = limit % 1000 * 1000};
  for (const int what : {SO_SNDTIMEO, SO_RCVTIMEO}) setsockopt(socket.number(), SOL_SOCKET, what, &value, sizeof value);
}

void do_not_block(const Socket& socket) {
  fcntl(socket.number(), F_SETFL, fcntl(socket.number(), F_GETFL) | O_NONBLOCK);
}

std::chrono::milliseconds until(Clock::time_point deadline) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
}

[[noreturn]] void cannot_be_reached(const std::string& who, const DoorAddress& address) {
  throw CommunicationError(who + " cannot be reached at " + address.host + ": " +
                           (errno == EINPROGRESS || errno == EAGAIN ? "no answer" : std::strerror(errno)));
}

Socket go_to(int rank, const DoorAddress& address, Hello hello, Clock::time_point deadline) {
  const std::string who = "rank " + std::to_string(rank);
  Socket out = connect_to(who, address, deadline);
  hello.secret = address.secret;
  if (::send(out.number(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) cannot_be_reached(who, address);
  return out;
}

bool has_been_left(const Socket& socket) {
  char byte = 0;
  return socket.is_open() && recv(socket.number(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/// Those who come through a door, until they have said who they are. Nobody keeps others waiting.
class Reception {
 public:
  Reception(const TcpDoor& door, const Hello& own) : door_(door), own_(own) { do_not_block(door.socket()); }

  struct Known {
    int rank = 0;
    Socket socket;
  };
  /// Whoever has become known until something happens, at the latest at `deadline`.
  std::vector<Known> wait(Clock::time_point deadline) {
    std::vector<pollfd> asked = {{.fd = door_.socket().number(), .events = POLLIN, .revents = 0}};
    for (const Guest& guest : guests_) {
      asked.push_back({.fd = guest.socket.number(), .events = POLLIN, .revents = 0});
      deadline = std::min(deadline, guest.since + longest_hello);
    }
    poll(asked.data(), asked.size(), static_cast<int>(std::max<int64_t>(until(deadline).count() + 1, 0)));
    std::vector<Known> out;
    for (Guest& guest : guests_) listen_to(guest, out);
    if (asked[0].revents != 0) let_in();
    std::erase_if(guests_, [](const Guest& guest) { return !guest.socket.is_open(); });
    return out;
  }

 private:
  struct Guest {
    Socket socket;
    Clock::time_point since;
    Hello hello = {};
    size_t come = 0;  // bytes of it
  };

  void let_in() {
    while (true) {
      Socket socket(accept4(door_.socket().number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.is_open()) return;
      if (guests_.size() == most_guests) guests_.pop_front();
      guests_.push_back({std::move(socket), Clock::now()});
    }
  }

  /// Closes the connection of whoever is not one of the job.
  void listen_to(Guest& guest, std::vector<Known>& out) {
    const ssize_t come =
        recv(guest.socket.number(), reinterpret_cast<char*>(&guest.hello) + guest.come, sizeof(Hello) - guest.come, 0);
    if (come < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (Clock::now() > guest.since + longest_hello) guest.socket.close();
      return;
    }
    if (come <= 0) return guest.socket.close();
    guest.come += static_cast<size_t>(come);
    if (guest.come < sizeof(Hello)) return;
    const Hello& hello = guest.hello;
    const bool of_job = std::memcmp(hello.protocol, own_.protocol, sizeof hello.protocol) == 0 &&
                        hello.secret == door_.secret() && hello.ranks == own_.ranks && hello.epoch == own_.epoch;
    if (!of_job) return guest.socket.close();
    out.push_back({hello.rank, std::move(guest.socket)});
  }

  const TcpDoor& door_;
  const Hello own_;
  std::deque<Guest> guests_;  // the oldest first
};

}  // namespace

Socket connect_to(const std::string& who, const DoorAddress& address, Clock::time_point deadline) {
  const Resolved place = resolve(address.host, address.port);
  Socket out(::socket(place.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  limit_calls(out, until(deadline));
  if (!out.is_open() || connect(out.number(), place.get(), place.length) != 0) cannot_be_reached(who, address);
  return out;
}

std::vector<Socket> connect_all(int rank, const TcpDoor& door, const std::vector<std::string>& doors,
                                std::chrono::milliseconds timeout, int epoch) {
  const auto deadline = Clock::now() + timeout;
  const auto ranks = static_cast<int>(doors.size());
  const Hello hello{.rank = rank, .ranks = ranks, .epoch = epoch};
  std::vector<Socket> out(doors.size());
  for (int to = 0; to < rank; ++to)
    out[static_cast<size_t>(to)] = go_to(to, parse_address(doors[static_cast<size_t>(to)]), hello, deadline);
  Reception reception(door, hello);
  const auto missing = [&] {
    return std::find_if(out.begin() + rank + 1, out.end(), [](const Socket& socket) { return !socket.is_open(); });
  };
  while (missing() != out.end()) {
    if (until(deadline).count() <= 0)
      throw CommunicationError("rank " + std::to_string(missing() - out.begin()) + " does not come");
    if (const auto left = std::ranges::find_if(out, has_been_left); left != out.end())
      throw CommunicationError("rank " + std::to_string(left - out.begin()) + " has left again");
    for (Reception::Known& known : reception.wait(std::min(deadline, Clock::now() + look_for_leavers)))
      if (known.rank > rank && known.rank < ranks) out[static_cast<size_t>(known.rank)] = std::move(known.socket);
  }
  for (const Socket& socket : out) {
    if (!socket.is_open()) continue;
    const int yes = 1;
    setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    do_not_block(socket);
  }
  return out;
}

}  // namespace piper
