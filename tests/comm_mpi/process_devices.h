// The processes of this test program.
#pragma once

#include "comm/processes/process_world.h"

namespace piper {

ProcessWorld& processes();

}  // namespace piper
