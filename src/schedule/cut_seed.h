// What a model is cut along.
#pragma once

#include <string>

namespace piper {

/// A dimension of the parameters whose names the pattern matches.
struct CutSeed {
  std::string pattern;
  int dim = 0;
  friend bool operator==(const CutSeed&, const CutSeed&) = default;
};

}  // namespace piper
