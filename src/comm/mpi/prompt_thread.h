// A thread that mostly sleeps and should run soon when it wakes.
#pragma once

namespace piper {

/// Of the calling thread, as far as the system allows: timers without slack, and short turns, which come sooner.
void make_prompt();

}  // namespace piper
