// A socket at which the other processes of a job find this one.
#pragma once

#include <cstdint>
#include <string>

namespace piper {

/// An open socket, closed with its owner.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int number) : number_(number) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : number_(other.number_) { other.number_ = -1; }
  Socket& operator=(Socket&& other) noexcept;

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  void close();

 private:
  int number_ = -1;
};

/// Where a door is, and what one must know to come in.
struct DoorAddress {
  std::string host;
  int port = 0;
  uint64_t secret = 0;
};
/// As `TcpDoor::address` writes it.
DoorAddress parse_address(const std::string& text);

class TcpDoor {
 public:
  /// At a numeric address of this host (IPv4 or IPv6) and a free port. Throws CommunicationError.
  explicit TcpDoor(const std::string& host);

  /// What the others need to know: address, port, and a secret, so that nobody else comes in.
  std::string address() const;
  const Socket& socket() const { return socket_; }
  uint64_t secret() const { return secret_; }

 private:
  std::string host_;
  Socket socket_;
  int port_ = 0;
  uint64_t secret_ = 0;
};

}  // namespace piper
