// Benchmarks have no use for input that is refused.
#pragma once

#include <fmt/format.h>

#include <cstdlib>

#include "base/result.h"

namespace piper {

template <class T>
T must(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "{}", render(result.error()));
    std::exit(1);
  }
  return *std::move(result);
}

}  // namespace piper
