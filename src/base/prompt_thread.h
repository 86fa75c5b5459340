// Threads that mostly wait, beside threads that compute all the time.
#pragma once

namespace piper {

/// Lets the calling thread run at once when what it waits for is there, although others keep all cores busy: short time
/// slices (where the system has them, since Linux 6.12), and timers without slack. Needs no privilege.
void make_thread_prompt();

}  // namespace piper
