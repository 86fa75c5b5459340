// The files that this program has read or keeps open, so that nothing it writes takes the place of one of them.
#pragma once

#include <string>

#include "base/result.h"

namespace piper {

/// From now on nothing else is written there. `as`: what the file is, in the user's words.
void use_file(const std::string& path, std::string_view as);

/// E108: the file is in use, under whatever name.
Checked check_not_in_use(const std::string& path);

}  // namespace piper
