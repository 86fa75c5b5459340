// For LD_PRELOAD: PIPER_DIE_AT=RANK:N kills the process of an MPI job with this rank, with SIGKILL, at its Nth pwrite,
// fsync or rename. Of a pwrite one half is written.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long limit(void) {
  const char* own = getenv("OMPI_COMM_WORLD_RANK");
  if (!own) own = getenv("PMI_RANK");
  const char* wanted = getenv("PIPER_DIE_AT");
  long rank = 0, calls = 0;
  if (!own || !wanted || sscanf(wanted, "%ld:%ld", &rank, &calls) != 2 || rank != atol(own)) return 0;
  return calls;
}

static int is_last(void) {
  static atomic_long calls;
  return atomic_fetch_add(&calls, 1) + 1 == limit();
}

static void die(void) {
  kill(getpid(), SIGKILL);
}

static ssize_t half_or_all(const char* name, int file, const void* bytes, size_t count, off64_t at) {
  ssize_t (*call)(int, const void*, size_t, off64_t) = dlsym(RTLD_NEXT, name);
  if (is_last()) {
    if (call(file, bytes, count / 2, at) >= 0) die();
  }
  return call(file, bytes, count, at);
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t at) {
  return half_or_all("pwrite64", file, bytes, count, at);
}

ssize_t pwrite64(int file, const void* bytes, size_t count, off64_t at) {
  return half_or_all("pwrite64", file, bytes, count, at);
}

int fsync(int file) {
  if (is_last()) die();
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}

int rename(const char* from, const char* to) {
  if (is_last()) die();
  return ((int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename"))(from, to);
}
