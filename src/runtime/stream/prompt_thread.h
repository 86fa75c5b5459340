// Threads that mostly wait, beside threads that compute all the time.
#pragma once

namespace piper {

/// Asks the system for short time slices for the calling thread, so that it runs at once when what it waits for is
/// there, although others keep all cores busy. Needs no privilege; does nothing where the system cannot (before Linux
/// 6.12).
void make_thread_prompt();

}  // namespace piper
