// Files that users want written.
#pragma once

#include <string>

#include "base/result.h"

namespace piper {

/// All of it or an error that says why not (E108): a full disk is noticed, and so is a file that was read.
Checked write_file(const std::string& path, std::string_view text);

/// For what is written at the end of something long: the file can be opened. Nothing in it changes.
Checked check_writable(const std::string& path);

}  // namespace piper
