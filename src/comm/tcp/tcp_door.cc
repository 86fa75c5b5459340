#include "comm/tcp/tcp_door.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>
#include <utility>

#include "comm/communicator.h"
#include "comm/tcp/tcp_address.h"

namespace piper {

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

void Socket::close() {
  if (is_open()) ::close(number_);
  number_ = -1;
}

DoorAddress parse_address(const std::string& text) {
  DoorAddress out;
  std::istringstream in(text);
  in >> out.host >> out.port >> out.secret;
  return out;
}

TcpDoor::TcpDoor(const std::string& host) : host_(host) {
  const auto fail = [&](const std::string& why) {
    throw CommunicationError("this process cannot be reached at " + host + ": " + why);
  };
  const Resolved place = resolve(host, 0);
  socket_ = Socket(::socket(place.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_.is_open() || bind(socket_.number(), place.get(), place.length) != 0 ||
      listen(socket_.number(), SOMAXCONN) != 0)
    fail(std::strerror(errno));
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (getsockname(socket_.number(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) fail(std::strerror(errno));
  port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                            : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  std::random_device random;
  secret_ = (uint64_t{random()} << 32) | random();
}

std::string TcpDoor::address() const {
  return host_ + " " + std::to_string(port_) + " " + std::to_string(secret_);
}

}  // namespace piper
