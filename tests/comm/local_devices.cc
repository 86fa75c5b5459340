#include "comm/local/local_world.h"
#include "devices.h"

namespace piper {

Communicators make_world(int devices, std::chrono::milliseconds patience) {
  return make_local_world(devices, {.patience = patience, .seconds = {}});
}

}  // namespace piper
