#include "comm/exact_sleep.h"

#include <thread>

#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace piper {

void sleep_exactly(std::chrono::steady_clock::time_point until) {
#ifdef __linux__
  prctl(PR_SET_TIMERSLACK, 1UL);  // of this thread
#endif
  constexpr std::chrono::microseconds waking(50);  // what it takes to wake a thread, and then some
  std::this_thread::sleep_until(until - waking);
  while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
}

}  // namespace piper
