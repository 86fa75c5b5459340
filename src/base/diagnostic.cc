#include "base/diagnostic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/json_string.h"
#include "base/utf8.h"

namespace piper {
namespace {

struct CodeRow {
  std::string_view name;
  std::string_view title;
};
constexpr CodeRow code_rows[] = {
#define PIPER_ROW(code, title) {#code, title},
    PIPER_ERROR_CODES(PIPER_ROW)
#undef PIPER_ROW
};

std::string_view paint(Color color, std::string_view escape) {
  return color == Color::Always ? escape : "";
}

/// Characters of a line as a terminal shows them, one column each: tabs are blanks, what is no text is `?`.
std::vector<std::string> shown_characters(std::string_view line) {
  std::vector<std::string> out;
  for (size_t i = 0; i < line.size();) {
    const size_t length = utf8_length(line.substr(i));
    const bool control = static_cast<unsigned char>(line[i]) < 0x20 || line[i] == 0x7f;
    out.emplace_back(line[i] == '\t' ? " " : length == 0 || control ? "?" : std::string(line.substr(i, length)));
    i += std::max<size_t>(1, length);
  }
  return out;
}

/// The line at `where` and a caret under it; long lines are cut around the caret.
std::string excerpt(const SourceRange& where, Color color) {
  constexpr size_t widest = 160;
  const SourcePosition at = position_of(where);
  std::string_view line = at.line_text;
  if (line.ends_with('\r')) line.remove_suffix(1);
  const size_t first = std::min(static_cast<size_t>(at.column) - 1, line.size());
  const auto bytes = static_cast<size_t>(std::max(1, where.end - where.begin));
  const std::vector<std::string> before = shown_characters(line.substr(0, first)),
                                 marked = shown_characters(line.substr(first, bytes));
  std::vector<std::string> characters = shown_characters(line);
  const size_t from = characters.size() > widest && before.size() > widest / 2 ? before.size() - widest / 2 : 0;
  const size_t to = std::min(characters.size(), from + widest);
  const size_t column = before.size() - from;
  const size_t room = to - from > column ? to - from - column : 1;
  const size_t length = std::clamp<size_t>(marked.size(), 1, room);
  return fmt::format(
      "  {}\n  {}{}{}{}\n",
      fmt::join(characters.begin() + static_cast<long>(from), characters.begin() + static_cast<long>(to), ""),
      std::string(column, ' '), paint(color, "\x1b[32m"), std::string(length, '^'), paint(color, "\x1b[0m"));
}

std::string headline(const SourceRange& where) {
  if (!where) return "piper: ";
  const SourcePosition at = position_of(where);
  return fmt::format("{}:{}:{}: ", where.file->name, at.line, at.column);
}

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string place_json(const SourceRange& where) {
  if (!where) return "null";
  const SourcePosition at = position_of(where);
  return fmt::format(R"({{"file": {}, "line": {}, "column": {}}})", quoted(where.file->name), at.line, at.column);
}

}  // namespace

std::string_view name(ErrorCode code) {
  return code_rows[static_cast<int>(code)].name;
}
std::string_view title(ErrorCode code) {
  return code_rows[static_cast<int>(code)].title;
}

Diagnostic error(ErrorCode code, SourceRange where, std::string message) {
  return {code, std::move(where), std::move(message), {}, {}};
}

std::string render(const Diagnostic& d, Color color) {
  const std::string_view red = paint(color, "\x1b[1;31m"), blue = paint(color, "\x1b[1;36m"),
                         off = paint(color, "\x1b[0m");
  std::string out = fmt::format("{}{}error[{}]{}: {}\n", headline(d.where), red, name(d.code), off, d.message);
  if (d.where) out += excerpt(d.where, color);
  for (const DiagnosticNote& note : d.notes) {
    out += fmt::format("{}{}note{}: {}\n", note.where ? headline(note.where) : "", blue, off, note.message);
    if (note.where) out += excerpt(note.where, color);
  }
  for (const std::string& help : d.helps) out += fmt::format("{}help{}: {}\n", blue, off, help);
  return out;
}

std::string render_json(const Diagnostic& d) {
  std::string notes, helps;
  for (const DiagnosticNote& note : d.notes)
    notes += fmt::format(R"({}{{"message": {}, "place": {}}})", notes.empty() ? "" : ", ", quoted(note.message),
                         place_json(note.where));
  for (const std::string& help : d.helps) helps += (helps.empty() ? "" : ", ") + quoted(help);
  return fmt::format(R"({{"code": "{}", "title": {}, "message": {}, "place": {}, "notes": [{}], "help": [{}]}})"
                     "\n",
                     name(d.code), quoted(title(d.code)), quoted(d.message), place_json(d.where), notes, helps);
}

}  // namespace piper
