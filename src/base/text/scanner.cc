#include "base/text/scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/text/is_digit.h"

namespace piper {
namespace {

constexpr size_t largest_text = 256u << 20;

bool is_word_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '%';
}
bool is_word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}
/// Length of the word or number that starts at `at`: letters and digits, with single dots inside.
size_t word_length(std::string_view text, size_t at) {
  size_t i = at + 1;
  while (i < text.size() &&
         (is_word_char(text[i]) || (text[i] == '.' && i + 1 < text.size() && is_word_char(text[i + 1]))))
    ++i;
  return i - at;
}

Result<Token> scan_string(const SourceFilePtr& file, size_t at) {
  const std::string_view text = file->text;
  Token token{TokenKind::String, "", static_cast<int>(at), 0, false};
  for (size_t i = at + 1; i < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == '"') {
      token.end = static_cast<int>(i + 1);
      return token;
    }
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] != '\n') ++i;
    token.text += text[i];
  }
  return error(ErrorCode::E101, {file, token.begin, token.begin + 1}, "string without closing quote")
      .help("a string ends on the line it begins on");
}

size_t symbol_length(std::string_view rest) {
  if (rest.starts_with("->") || rest.starts_with("..")) return 2;
  return std::string_view("()[]{},=:|*+-/@;").find(rest[0]) == std::string_view::npos ? 0 : 1;
}

std::string printable(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x7f ? fmt::format("'{}'", c) : fmt::format("byte 0x{:02x}", byte);
}

}  // namespace

Result<Scanner> Scanner::scan(SourceFilePtr file) {
  Scanner scanner;
  scanner.file_ = file;
  const std::string_view text = file->text;
  if (text.size() > largest_text)
    return error(ErrorCode::E113, {file, 0, 1},
                 fmt::format("the file has {} bytes; the limit is {}", text.size(), largest_text))
        .help("is it the file you meant?");
  bool first_on_line = true;
  const size_t byte_order_mark = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  for (size_t i = byte_order_mark; i < text.size();) {
    const char c = text[i];
    if (c == '\n') {
      first_on_line = true;
      ++i;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++i;
    } else if (c == '#' || text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else {
      Token token;
      if (is_word_start(c) || is_digit(c)) {
        const size_t length = word_length(text, i);
        token = {is_digit(c) ? TokenKind::Number : TokenKind::Word, std::string(text.substr(i, length)),
                 static_cast<int>(i), static_cast<int>(i + length), false};
      } else if (c == '"') {
        PIPER_TRY(token, scan_string(file, i));
      } else if (const size_t length = symbol_length(text.substr(i))) {
        token = {TokenKind::Symbol, std::string(text.substr(i, length)), static_cast<int>(i),
                 static_cast<int>(i + length), false};
      } else {
        return error(ErrorCode::E101, {file, static_cast<int>(i), static_cast<int>(i + 1)},
                     fmt::format("unexpected {}", printable(c)))
            .help("other characters stand in double quotes, or in a comment after #");
      }
      token.first_on_line = first_on_line;
      first_on_line = false;
      i = static_cast<size_t>(token.end);
      scanner.tokens_.push_back(std::move(token));
    }
  }
  const int end = static_cast<int>(text.size());
  scanner.tokens_.push_back({TokenKind::End, "", end, end, true});
  return scanner;
}

const Token& Scanner::peek(size_t ahead) const {
  return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
}

Token Scanner::take() {
  const Token& token = peek();
  if (next_ + 1 < tokens_.size()) ++next_;
  last_end_ = token.end;
  return token;
}

bool Scanner::is_symbol(std::string_view symbol, size_t ahead) const {
  return peek(ahead).kind == TokenKind::Symbol && peek(ahead).text == symbol;
}

bool Scanner::is_word(std::string_view word, size_t ahead) const {
  return peek(ahead).kind == TokenKind::Word && peek(ahead).text == word;
}

bool Scanner::accept(std::string_view symbol) {
  if (!is_symbol(symbol)) return false;
  take();
  return true;
}

bool Scanner::accept_word(std::string_view word) {
  if (!is_word(word)) return false;
  take();
  return true;
}

Diagnostic Scanner::unexpected(std::string_view what) const {
  const Token& token = peek();
  const std::string found = token.kind == TokenKind::End      ? "the end of the text"
                            : token.kind == TokenKind::String ? fmt::format("\"{}\"", token.text)
                                                              : fmt::format("'{}'", token.text);
  const bool behind = token.kind == TokenKind::End && last_end_ > 0;  // the last line that says something, not the end
  return error(ErrorCode::E101, behind ? SourceRange{file_, last_end_, last_end_ + 1} : range(token),
               fmt::format("expected {}, found {}", what, found));
}

Checked Scanner::expect(std::string_view symbol, std::string_view what_for) {
  if (accept(symbol)) return Ok{};
  return unexpected(fmt::format("'{}'{}{}", symbol, what_for.empty() ? "" : " ", what_for));
}

Checked Scanner::expect_word(std::string_view word) {
  if (accept_word(word)) return Ok{};
  return unexpected(fmt::format("'{}'", word));
}

Result<std::string> Scanner::name(std::string_view what) {
  if (peek().kind == TokenKind::Symbol || at_end()) return unexpected(what);
  return take().text;
}

Result<int64_t> Scanner::integer(std::string_view what) {
  const bool negative = is_symbol("-") && peek(1).kind == TokenKind::Number;
  const Token& token = peek(negative ? 1 : 0);
  if (token.kind != TokenKind::Number) return unexpected(what);
  const auto value = parse_integer(token.text);
  if (!value)
    return error(ErrorCode::E102, range(token), fmt::format("'{}' is not a whole number", token.text))
        .help("write digits only, as in 12; at most 18 of them");
  if (negative) take();
  take();
  return negative ? -*value : *value;
}

Checked Scanner::end_of_line() {
  if (at_line_start()) return Ok{};
  return unexpected("the end of the line");
}

std::string as_name(std::string_view text) {
  const bool plain =
      !text.empty() && (is_word_start(text[0]) || is_digit(text[0])) && word_length(text, 0) == text.size();
  if (plain) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + '"';
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace piper
