#include "base/match_pattern.h"

namespace piper {

bool matches_pattern(std::string_view name, std::string_view pattern) {
  size_t n = 0, p = 0, star = pattern.npos, after = 0;  // where the last star stood, and what it has taken so far
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++after;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace piper
