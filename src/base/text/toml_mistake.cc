#include "base/text/toml_mistake.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/text/is_digit.h"
#include "base/text/toml_brackets.h"

namespace piper {
namespace {

/// A piece of the file's text, and where it begins there.
struct Piece {
  std::string_view text;
  size_t begin = 0;

  bool empty() const { return text.empty(); }
  Piece part(size_t from, size_t length = std::string_view::npos) const {
    from = std::min(from, text.size());
    return {text.substr(from, length), begin + from};
  }
  Piece trimmed() const {
    const size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return part(text.size());
    return part(first, text.find_last_not_of(" \t\r") - first + 1);
  }
};

/// `[name]`, or `key = value`, as far as it is there; comments are left out.
struct Line {
  Piece whole, key, value;
  bool header = false, equals = false;
};

size_t end_of_line(std::string_view text, size_t from) {
  return std::min(text.find('\n', from), text.size());
}

size_t start_of_line(std::string_view text, size_t at) {
  const size_t before = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  return before == std::string_view::npos ? 0 : before + 1;
}

/// The line without its comment: what starts with a `#` outside quotes.
Piece without_comment(const Piece& line) {
  char quote = 0;
  for (size_t i = 0; i < line.text.size(); ++i) {
    const char c = line.text[i];
    if (quote ? c == quote : c == '"' || c == '\'') quote = quote ? 0 : c;
    if (c == '#' && !quote) return line.part(0, i);
  }
  return line;
}

Line read_line(std::string_view text, size_t begin) {
  Line line;
  line.whole = without_comment(Piece{text.substr(begin, end_of_line(text, begin) - begin), begin}).trimmed();
  line.header = line.whole.text.starts_with('[');
  const size_t equals = line.header ? std::string_view::npos : line.whole.text.find('=');
  line.equals = equals != std::string_view::npos;
  line.key = line.whole.part(0, equals).trimmed();
  line.value = line.equals ? line.whole.part(equals + 1).trimmed() : line.whole.part(line.whole.text.size());
  return line;
}

class Reader {
 public:
  Reader(const SourceFilePtr& file, int at) : file_(file), at_(static_cast<size_t>(at)) {
    line_ = read_line(file->text, start_of_line(file->text, at_));
    const auto bracket = open_bracket(std::string_view(file->text).substr(0, line_.whole.begin));
    if (bracket) line_ = read_line(file->text, start_of_line(file->text, *bracket));
    if (bracket) at_ = *bracket;
  }

  Diagnostic explain() const {
    if (const auto first = same_before()) return twice(*first);
    if (line_.header) return bad_header();
    if (!line_.equals || line_.key.empty())
      return bad(line_.whole, "expected KEY = VALUE or [SECTION]").help(write_instead());
    if (line_.value.empty())
      return bad(line_.key, fmt::format("{} has no value", line_.key.text))
          .help("write the value after =, on the same line");
    return bad_value();
  }

 private:
  Diagnostic bad(const Piece& piece, std::string message) const {
    const int begin = static_cast<int>(std::min(piece.begin, file_->text.size()));
    return error(ErrorCode::E111, {file_, begin, begin + std::max(1, static_cast<int>(piece.text.size()))},
                 std::move(message));
  }

  /// An earlier line with the same header, or with the same key in the same section.
  std::optional<Line> same_before() const {
    std::optional<Line> found;
    const std::string_view text = file_->text;
    for (size_t begin = 0; begin < line_.whole.begin && begin < text.size(); begin = end_of_line(text, begin) + 1) {
      const Line line = read_line(text, begin);
      if (line.whole.begin >= line_.whole.begin) break;
      if (line.header && !line_.header) found.reset();  // keys of another section
      const bool same = line_.header ? line.whole.text == line_.whole.text
                                     : line_.equals && line.equals && line.key.text == line_.key.text;
      if (same && !found) found = line;
    }
    return found;
  }

  Diagnostic twice(const Line& first) const {
    const Piece& what = line_.header ? line_.whole : line_.key;
    const Piece& other = line_.header ? first.whole : first.key;
    return bad(what, fmt::format("{} stands twice", what.text))
        .note(bad(other, "").where, "first here")
        .help(line_.header ? "put the keys of both under one" : "keep one of them");
  }

  Diagnostic bad_header() const {
    return bad(line_.whole, "a section is its name in brackets, on a line of its own").help("write [name]");
  }

  std::string write_instead() const {
    const size_t colon = line_.whole.text.find(':');
    if (colon == std::string_view::npos) return "for example batch = 8, or [step]";
    const std::string_view key = line_.whole.part(0, colon).trimmed().text;
    const std::string_view value = line_.whole.part(colon + 1).trimmed().text;
    const bool bare = value.empty() || is_digit(value[0]) || value[0] == '"' || value == "true" || value == "false";
    return bare ? fmt::format("write {} = {}", key, value) : fmt::format("write {} = \"{}\"", key, value);
  }

  Diagnostic bad_value() const {
    const char first = line_.value.text[0];
    const Piece word = line_.value.part(0, line_.value.text.find_first_of(" \t,"));
    const bool plain = std::string_view("\"'[{").find(first) == std::string_view::npos;
    if (plain && at_ > word.begin + word.text.size()) return bad_rest(line_.value.part(at_ - line_.value.begin));
    if (first == '"' || first == '\'')
      return bad(line_.value, "the text is not closed, or goes on after its closing quote")
          .help(fmt::format("write {} = {}text{}, on one line; a backslash is written twice", line_.key.text, first,
                            first));
    if (first == '[')
      return bad(line_.value, "the list is not closed or not well formed").help("write it as [1, 2, 3]");
    if (first == '{')
      return bad(line_.value, "the table is not closed or not well formed")
          .help("write it as {a = 1, b = 2}, on one line");
    if (word.text == "True" || word.text == "False")
      return bad(word, fmt::format("{} is not a value", word.text))
          .help(word.text == "True" ? "write true" : "write false");
    if (is_digit(first) || first == '-' || first == '+' || first == '.') return bad_number(word);
    return bad(line_.value, fmt::format("{} stands without quotes", line_.value.text))
        .help(fmt::format("a text stands in double quotes: {} = \"{}\"", line_.key.text, line_.value.text));
  }

  Diagnostic bad_number(const Piece& word) const {
    if (std::all_of(word.text.begin() + 1, word.text.end(), is_digit))
      return bad(word, fmt::format("{} is too large a number, or starts with a needless 0", word.text))
          .help(fmt::format("whole numbers go up to {}", INT64_MAX));
    return bad(line_.value, fmt::format("{} is not a number", line_.value.text))
        .help(fmt::format("a number with a unit is a text in double quotes: {} = \"{}\"", line_.key.text,
                          line_.value.text));
  }

  Diagnostic bad_rest(const Piece& rest) const {
    return bad(rest, fmt::format("unexpected text after the value of {}", line_.key.text))
        .help("one key on each line; comments start with #");
  }

  const SourceFilePtr& file_;
  size_t at_;
  Line line_;
};

}  // namespace

Diagnostic toml_mistake(const SourceFilePtr& file, int at) {
  return Reader(file, at).explain();
}

}  // namespace piper
