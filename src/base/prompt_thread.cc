#include "base/prompt_thread.h"

#ifdef __linux__
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace piper {

void make_thread_prompt() {
#ifdef __linux__
  prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds
#ifdef SYS_sched_setattr
  struct {  // sched_attr of the kernel, which the library does not declare
    uint32_t size = 48, policy = SCHED_OTHER;
    uint64_t flags = 0;
    int32_t nice = getpriority(PRIO_PROCESS, 0);
    uint32_t priority = 0;
    uint64_t runtime = 100'000;  // nanoseconds: the slice; the usual one is about 3 ms
    uint64_t deadline = 0, period = 0;
  } wanted;
  static_assert(sizeof wanted == 48);
  syscall(SYS_sched_setattr, 0, &wanted, 0);
#endif
#endif
}

}  // namespace piper
