// Files that a configuration names.
#pragma once

#include <string>

#include "base/source.h"

namespace piper {

struct NamedFile {
  std::string path;   // as it can be opened
  SourceRange where;  // the name as it was written
};

}  // namespace piper
