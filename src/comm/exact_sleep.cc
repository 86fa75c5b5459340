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
  std::this_thread::sleep_until(until);
}

}  // namespace piper
