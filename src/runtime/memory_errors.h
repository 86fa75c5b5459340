// Memory that was not there, whoever says so.
#pragma once

#include <exception>
#include <string>

namespace piper {

/// Of the host or of a GPU; also where only the text of libtorch's error is left.
bool is_out_of_memory(const std::exception& problem);

/// What it says, without libtorch's stack.
std::string plain_text(const std::exception& problem);

}  // namespace piper
