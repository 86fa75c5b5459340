#include "base/suggest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace piper {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  const auto plain = [](unsigned char letter) { return letter == '_' ? '-' : std::tolower(letter); };
  const auto same = [&](unsigned char x, unsigned char y) { return plain(x) == plain(y); };
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = d[i - 1][j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates) {
  constexpr size_t longest_worth_comparing = 60;
  if (wrong.size() > longest_worth_comparing) return "";
  // One letter in three may be wrong, but never all of them: x is not near F.
  size_t best = std::min(std::max<size_t>(1, wrong.size() / 3) + 1, std::max<size_t>(1, wrong.size()));
  std::string found;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > longest_worth_comparing) continue;
    const size_t distance = edit_distance(wrong, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& candidates) {
  if (const std::string found = nearest(wrong, candidates); !found.empty())
    return fmt::format("did you mean \"{}\"?", found);
  if (candidates.empty()) return "";
  constexpr size_t most = 12;
  std::vector<std::string> shown(candidates.begin(),
                                 candidates.begin() + static_cast<long>(std::min(most, candidates.size())));
  if (candidates.size() > most) shown.push_back(fmt::format("… ({} in all)", candidates.size()));
  return fmt::format("known: {}", fmt::join(shown, ", "));
}

}  // namespace piper
