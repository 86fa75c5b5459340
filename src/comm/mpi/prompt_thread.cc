#include "comm/mpi/prompt_thread.h"

#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace piper {

void make_prompt() {
#ifdef __linux__
  prctl(PR_SET_TIMERSLACK, 1UL);
#ifdef SYS_sched_setattr
  struct {  // sched_attr of the kernel; the C library does not declare it
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } turns = {};
  turns.size = sizeof turns;
  turns.flags = 0x10;       // the parameters that are not given stay
  turns.runtime = 100'000;  // ns; since Linux 6.12 the length of a turn, earlier without effect
  syscall(SYS_sched_setattr, 0, &turns, 0);
#endif
#endif
}

}  // namespace piper
