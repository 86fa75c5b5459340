#include "random/shrink.h"

#include <algorithm>
#include <set>

#include "random/text_moves.h"

namespace piper::random {
namespace {

/// `place({layer=0}, …)` as `place({}, …)`.
std::string for_everything(const std::string& line) {
  const size_t open = line.find("({"), close = line.find('}');
  return open == std::string::npos ? line : line.substr(0, open + 2) + line.substr(close);
}

std::string verb_of(const std::string& line) {
  return line.substr(0, line.find('('));
}

/// All cases that are one change smaller, the largest changes first.
std::vector<Case> smaller_cases(const Case& c) {
  std::vector<Case> out;
  const auto changed = [&](auto change) {
    Case less = c;
    change(less);
    if (less != c) out.push_back(std::move(less));
  };
  for (size_t d = 0; d < c.directives.size(); ++d)
    changed([&](Case& less) { less.directives.erase(less.directives.begin() + static_cast<std::ptrdiff_t>(d)); });
  for (const std::string& line : c.directives)  // one directive instead of all of its kind
    changed([&](Case& less) {
      const auto alike = [&](const std::string& other) { return other != line && verb_of(other) == verb_of(line); };
      std::erase_if(less.directives, alike);
      for (std::string& other : less.directives)
        if (other == line) other = for_everything(line);
    });
  changed([](Case& less) { less.issue = Issue::Ahead; });
  // sizes that belong together: stages, devices, microbatches
  std::set<int> numbers;
  for (const std::string& line : c.directives)
    for (const int n : numbers_in(line)) numbers.insert(n);
  for (const int from : numbers)
    for (const int to : {from / 2, from - 1})
      if (to > 0)
        changed([&](Case& less) {
          for (std::string& line : less.directives) line = with_number(line, from, to);
        });
  for (size_t d = 0; d < c.directives.size(); ++d)
    for (const std::string& line : smaller(c.directives[d])) changed([&](Case& less) { less.directives[d] = line; });
  for (auto section : {&Case::step, &Case::model})
    for (size_t l = 0; l < (c.*section).size(); ++l) {
      if ((c.*section)[l].starts_with("vocab")) continue;  // the data have so many words
      changed([&](Case& less) { (less.*section).erase((less.*section).begin() + static_cast<std::ptrdiff_t>(l)); });
      for (const std::string& line : smaller((c.*section)[l])) changed([&](Case& less) { (less.*section)[l] = line; });
    }
  return out;
}

}  // namespace

Case shrink(Case c, const std::string& fault, int tries) {
  std::vector<Case> candidates = smaller_cases(c);
  size_t at = 0, failed = 0;  // in a row
  while (failed < candidates.size() && tries-- > 0) {
    at = at < candidates.size() ? at : 0;
    const Case less = candidates[at];
    if (judge(less).what == fault) {
      c = less;
      candidates = smaller_cases(c);
      failed = 0;
    } else {
      ++at;
      ++failed;
    }
  }
  return c;
}

}  // namespace piper::random
