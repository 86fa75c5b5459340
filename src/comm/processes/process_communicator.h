// One device's end of all communication between processes: every exchange is made of messages between two.
#pragma once

#include "comm/processes/engine.h"

namespace piper {

/// Of world number `world` with this many devices.
std::unique_ptr<Communicator> make_process_communicator(std::shared_ptr<Engine> engine, int world, int devices,
                                                        int device, std::chrono::milliseconds timeout);

}  // namespace piper
