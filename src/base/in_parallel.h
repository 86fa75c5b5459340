// The same work on many items, on a few threads.
#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"

namespace piper {

/// work(i) for every i below `count`, on at most `threads` threads, this one among them. After an error no further item
/// is begun; the error of the lowest item is returned. What `work` throws ends the program.
Checked in_parallel(size_t count, size_t threads, const std::function<Checked(size_t)>& work);

}  // namespace piper
