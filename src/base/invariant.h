// What must hold whatever the user wrote; a failure is an internal error, never the user's.
#pragma once

#include <stdexcept>
#include <string>

namespace piper {

/// Our bug. The program prints it with the pass that ran and exits with 70.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] inline void internal_error(const std::string& what) {
  throw InternalError(what);
}

/// `message` is a literal: it must cost nothing while the condition holds.
inline void invariant(bool holds, const char* message) {
  if (!holds) [[unlikely]]
    internal_error(message);
}

}  // namespace piper
