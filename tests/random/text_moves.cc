#include "random/text_moves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

namespace piper::random {
namespace {

/// [begin, end) of a text.
struct Span {
  size_t begin = 0, end = 0;
};

bool is_in(char c, std::string_view set) {
  return set.find(c) != std::string_view::npos;
}

/// Numbers by themselves: not those in `1f1b` or `zb-h1`, nor parts of fractions.
std::vector<Span> number_spans(const std::string& text) {
  const auto part_of_word = [&](size_t at) {
    return at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_' || text[at] == '-');
  };
  std::vector<Span> out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!std::isdigit(static_cast<unsigned char>(text[i]))) continue;
    size_t end = i;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    const bool fraction = (end + 1 < text.size() && text[end] == '.' && text[end + 1] != '.') ||
                          (i > 1 && text[i - 1] == '.' && text[i - 2] != '.');
    if (!fraction && !part_of_word(end) && !(i > 0 && part_of_word(i - 1)) && end - i < 6) out.push_back({i, end});
    i = end;
  }
  return out;
}

/// The items between brackets, of all brackets, outermost first.
struct Bracket {
  Span inside;
  std::vector<Span> items;
};
std::vector<Bracket> brackets_of(const std::string& text) {
  std::vector<Bracket> out;
  for (size_t open = 0; open < text.size(); ++open) {
    if (!is_in(text[open], "([{")) continue;
    Bracket bracket{{open + 1, text.size()}, {}};
    int depth = 0;
    size_t begin = open + 1;
    for (size_t i = open + 1; i < text.size(); ++i) {
      if (is_in(text[i], "([{")) ++depth;
      const bool closes = is_in(text[i], ")]}");
      if (depth == 0 && (closes || text[i] == ',')) {
        if (i > begin) bracket.items.push_back({begin, i});
        begin = i + 1;
      }
      if (closes && depth-- == 0) {
        bracket.inside.end = i;
        break;
      }
    }
    out.push_back(std::move(bracket));
  }
  std::ranges::stable_sort(out, std::greater<>{}, [](const Bracket& b) { return b.inside.end - b.inside.begin; });
  return out;
}

std::string replaced(const std::string& text, Span span, const std::string& by) {
  return text.substr(0, span.begin) + by + text.substr(span.end);
}

}  // namespace

std::vector<std::string> smaller(const std::string& line) {
  std::vector<std::string> out;
  for (const Bracket& bracket : brackets_of(line)) {
    const size_t count = bracket.items.size();
    const auto without = [&](size_t first, size_t last) {
      std::string inside;
      for (size_t i = 0; i < count; ++i)
        if (i < first || i >= last) {
          std::string item = line.substr(bracket.items[i].begin, bracket.items[i].end - bracket.items[i].begin);
          if (inside.empty()) item.erase(0, item.find_first_not_of(' '));
          inside += (inside.empty() ? "" : ",") + item;
        }
      out.push_back(replaced(line, bracket.inside, inside));
    };
    for (size_t half = count / 2; half > 1; half /= 2)  // long lists by halves
      for (size_t first = 0; first + half <= count; first += half) without(first, first + half);
    for (size_t i = 0; i < count; ++i) without(i, i + 1);
    const bool nested = line[bracket.inside.begin - 1] == '[' && count > 1;
    if (nested && line[bracket.items[0].begin] == '{')
      out.push_back(replaced(line, {bracket.inside.begin - 1, bracket.inside.end + 1},
                             line.substr(bracket.items[0].begin, bracket.items[0].end - bracket.items[0].begin)));
  }
  for (const Span& span : number_spans(line)) {
    const int number = std::stoi(line.substr(span.begin, span.end - span.begin));
    std::set<int> less = {0, 1, number / 2, number - 1};
    for (const int n : less)
      if (n >= 0 && n < number) out.push_back(replaced(line, span, fmt::format("{}", n)));
  }
  return out;
}

std::vector<int> numbers_in(const std::string& line) {
  std::vector<int> out;
  for (const Span& span : number_spans(line)) out.push_back(std::stoi(line.substr(span.begin, span.end - span.begin)));
  return out;
}

std::string with_number(const std::string& line, int from, int to) {
  std::string out = line;
  const std::vector<Span> spans = number_spans(line);
  for (auto span = spans.rbegin(); span != spans.rend(); ++span)
    if (std::stoi(line.substr(span->begin, span->end - span->begin)) == from)
      out = replaced(out, *span, fmt::format("{}", to));
  return out;
}

}  // namespace piper::random
