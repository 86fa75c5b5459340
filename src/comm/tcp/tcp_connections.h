// How the processes of a job connect: every one goes to the doors of the lower ranks, and lets the higher ones in.
#pragma once

#include <chrono>
#include <vector>

#include "comm/tcp/tcp_door.h"

namespace piper {

/// `who` is found at this address. Its calls block, each for as long as is left at most. Throws CommunicationError.
Socket connect_to(const std::string& who, const DoorAddress& address, std::chrono::steady_clock::time_point deadline);

/// By rank; closed: this process. Only processes of the same epoch are let in. Throws CommunicationError.
std::vector<Socket> connect_all(int rank, const TcpDoor& door, const std::vector<std::string>& doors,
                                std::chrono::milliseconds timeout, int epoch);

}  // namespace piper
