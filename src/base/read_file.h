// Files that users name.
#pragma once

#include <string>

#include "base/result.h"

namespace piper {

/// The whole file; `what` it is appears in the message if it cannot be read (E108).
Result<SourceFilePtr> read_file(const std::string& path, std::string_view what);

}  // namespace piper
