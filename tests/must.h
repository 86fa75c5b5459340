// For what a test needs to go well: the value of a result, or an exception with the diagnostic.
#pragma once

#include <stdexcept>

#include "base/diagnostic.h"
#include "base/result.h"

namespace piper {

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(render(result.error()));
  return *std::move(result);
}

}  // namespace piper
