// How the processes of a job connect: every one goes to the doors of the lower ranks, and lets the higher ones in.
#pragma once

#include <chrono>
#include <vector>

#include "comm/tcp/tcp_door.h"

namespace piper {

/// By rank; closed: this process. Throws CommunicationError.
std::vector<Socket> connect_all(int rank, const TcpDoor& door, const std::vector<std::string>& doors,
                                std::chrono::milliseconds timeout);

}  // namespace piper
