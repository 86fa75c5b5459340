// What can be wrong with a checkpoint, in one form of words.
#pragma once

#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace piper {

/// E901.
Diagnostic not_a_checkpoint(const std::string& path, std::string_view reason);
/// E902: `file: reason`.
Diagnostic damaged(const std::string& file, std::string_view reason);
/// E903: the system refused something; `reason` is its errno.
Diagnostic cannot_write(const std::string& path, int reason);

}  // namespace piper
