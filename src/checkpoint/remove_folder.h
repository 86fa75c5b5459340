// Deletes folders.
#pragma once

#include <string>

#include "base/result.h"

namespace piper {

/// With all that is in it; fine if there is none. E903.
Checked remove_folder(const std::string& path);

}  // namespace piper
