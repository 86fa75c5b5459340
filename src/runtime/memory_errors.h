// Out-of-memory errors of all libraries.
#pragma once

#include <exception>
#include <string>

namespace piper {

/// Of the host or of a GPU; recognises libtorch's errors by their text too.
bool is_out_of_memory(const std::exception& problem);

/// Its message, without libtorch's stack trace.
std::string plain_text(const std::exception& problem);

}  // namespace piper
