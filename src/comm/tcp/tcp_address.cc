#include "comm/tcp/tcp_address.h"

#include <netdb.h>

#include <cstring>

#include "comm/communicator.h"

namespace piper {

Resolved resolve(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  if (const int problem = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); problem != 0)
    throw CommunicationError(host + " is no address: " + gai_strerror(problem));
  Resolved out;
  std::memcpy(&out.storage, found->ai_addr, found->ai_addrlen);
  out.length = found->ai_addrlen;
  out.family = found->ai_family;
  freeaddrinfo(found);
  return out;
}

}  // namespace piper
