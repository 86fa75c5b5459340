#include "checkpoint/file_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace piper {

constinit const FileCalls system_calls = {
    pwrite,
    fsync,
    rename,
    [](const char* one, const char* other) { return renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE); },
};

}  // namespace piper
