// Numeric addresses of the network.
#pragma once

#include <sys/socket.h>

#include <string>

namespace piper {

struct Resolved {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// Throws CommunicationError.
Resolved resolve(const std::string& host, int port);

}  // namespace piper
