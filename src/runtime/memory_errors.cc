#include "runtime/memory_errors.h"

#include <c10/util/Exception.h>

#include <new>

namespace piper {

bool is_out_of_memory(const std::exception& problem) {
  if (dynamic_cast<const std::bad_alloc*>(&problem) || dynamic_cast<const c10::OutOfMemoryError*>(&problem))
    return true;
  const std::string text = problem.what();
  return text.find("can't allocate memory") != std::string::npos || text.find("out of memory") != std::string::npos;
}

std::string plain_text(const std::exception& problem) {
  if (const auto* error = dynamic_cast<const c10::Error*>(&problem)) return error->what_without_backtrace();
  if (dynamic_cast<const std::bad_alloc*>(&problem)) return "memory cannot be taken";
  return problem.what();
}

}  // namespace piper
