// Bytes between processes by TCP: one connection between every two.
#pragma once

#include <chrono>

#include "comm/processes/wire.h"
#include "comm/tcp/tcp_door.h"

namespace piper {

/// `doors`: addresses of everybody's door, by rank. Returns when everybody is connected to everybody. Throws
/// CommunicationError when that takes longer than `patience`.
std::unique_ptr<Wire> make_tcp_wire(int rank, const TcpDoor& door, const std::vector<std::string>& doors,
                                    std::chrono::milliseconds patience);

}  // namespace piper
