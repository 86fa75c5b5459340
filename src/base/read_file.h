// Files that users name.
#pragma once

#include <string>

#include "base/result.h"

namespace piper {

/// The whole file; `what` it is appears in the message if it cannot be read (E108) or is larger than files of its kind
/// ever are (E113). What was read is not written by this program any more.
Result<SourceFilePtr> read_file(const std::string& path, std::string_view what, size_t largest = 64u << 20);

/// `did you mean "x"?` if there is a file of such a name beside. For Diagnostic::help.
std::string similar_file(const std::string& path);

}  // namespace piper
