#include "base/text/toml_brackets.h"

#include <algorithm>
#include <vector>

namespace piper {
namespace {

/// Where the text in quotes or the comment that starts here ends; `at` itself if there is none.
size_t skip_inert(std::string_view text, size_t at) {
  const char first = text[at];
  if (first == '#') return std::min(text.find('\n', at), text.size()) - 1;
  if (first != '"' && first != '\'') return at;
  size_t end = at + 1;
  for (; end < text.size() && text[end] != first && text[end] != '\n'; ++end)
    if (first == '"' && text[end] == '\\') ++end;
  return end;
}

struct Open {
  size_t at;
  int levels;  // of the bracket and of the key before it
};

/// Goes through the text until `stop(depth)`, and says where that was; `open` are the brackets open there.
template <class Stop>
std::optional<size_t> scan(std::string_view text, std::vector<Open>& open, Stop stop) {
  int outside = 0, dots = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    i = skip_inert(text, i);
    const char c = i < text.size() ? text[i] : '\n';
    if (c == '.') ++dots;
    if (c == '[' || c == '{') {
      open.push_back({i, dots + 1});
      outside += dots + 1;
      dots = 0;
    } else if ((c == ']' || c == '}') && !open.empty()) {
      outside -= open.back().levels;
      open.pop_back();
      dots = 0;
    } else if (c == ',' || (c == '\n' && open.empty())) {
      dots = 0;
    }
    if (stop(outside + dots)) return i;
  }
  return std::nullopt;
}

}  // namespace

std::optional<size_t> nested_deeper_than(std::string_view text, int most) {
  std::vector<Open> open;
  return scan(text, open, [&](int depth) { return depth > most; });
}

std::optional<size_t> open_bracket(std::string_view text) {
  std::vector<Open> open;
  scan(text, open, [](int) { return false; });
  return open.empty() ? std::nullopt : std::optional(open.back().at);
}

}  // namespace piper
