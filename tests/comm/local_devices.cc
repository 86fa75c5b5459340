#include "comm/local/local_world.h"
#include "devices.h"

namespace piper {

Communicators make_world(int devices, std::chrono::milliseconds timeout) {
  return make_local_world(devices, {.timeout = timeout, .seconds = {}});
}

}  // namespace piper
