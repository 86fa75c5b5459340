// What is wrong with text that is not TOML, in the words of somebody who has never seen its specification.
#pragma once

#include "base/diagnostic.h"

namespace piper {

/// E111 about the line at which the reader gave up, at byte `at` of the file.
Diagnostic toml_mistake(const SourceFilePtr& file, int at);

}  // namespace piper
