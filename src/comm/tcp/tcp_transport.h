// Bytes between processes by TCP: one connection between every two.
#pragma once

#include <chrono>

#include "comm/processes/transport.h"
#include "comm/tcp/tcp_door.h"

namespace piper {

/// `doors`: addresses of everybody's door, by rank. Returns when everybody is connected to everybody. Throws
/// CommunicationError when that takes longer than `timeout`. `epoch`: whoever has another one stays outside.
std::unique_ptr<Transport> make_tcp_transport(int rank, const TcpDoor& door, const std::vector<std::string>& doors,
                                              std::chrono::milliseconds timeout, int epoch = 0);

}  // namespace piper
