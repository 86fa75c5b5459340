// Loaded in front of libc: the call of fork that PIPER_NO_FORK says, counted from 1 along a line of processes, fails.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>

pid_t fork(void) {
  static int calls;
  const char* which = getenv("PIPER_NO_FORK");
  if (which && ++calls == atoi(which)) {
    errno = EAGAIN;
    return -1;
  }
  return ((pid_t(*)(void))dlsym(RTLD_NEXT, "fork"))();
}
