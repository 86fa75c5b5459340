// The system calls through which a checkpoint reaches the disk. Tests substitute others that fail, stop the
// process, or forget what was not synced.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace piper {

/// With the meaning, return values and errno of the calls of these names.
struct FileCalls {
  ssize_t (*pwrite)(int file, const void* bytes, size_t count, off_t at);
  int (*fsync)(int file);
  int (*rename)(const char* from, const char* to);
  /// renameat2 with RENAME_EXCHANGE: two names change places at once.
  int (*exchange)(const char* one, const char* other);
};

extern const FileCalls system_calls;

}  // namespace piper
