// What C++ throws to be refused in Python.
#pragma once

#include <stdexcept>
#include <utility>

#include "base/result.h"

namespace piper::python {

/// Becomes a piper.Error when it reaches Python.
struct Raised : std::runtime_error {
  explicit Raised(Diagnostic problem) : std::runtime_error(problem.message), diagnostic(std::move(problem)) {}
  Diagnostic diagnostic;
};

/// The value, or the exception.
template <class T>
T unwrap(Result<T> result) {
  if (!result) throw Raised(std::move(result.error()));
  return *std::move(result);
}

}  // namespace piper::python
