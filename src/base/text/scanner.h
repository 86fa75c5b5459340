// The words of all our text forms (schedules, models, DAGs, plans): one scanner for every parser.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/source.h"

namespace piper {

enum class TokenKind {
  Word,    // layer, model.layers.0.wq
  Number,  // 12, 1.5, 25MB, 1f1b: starts with a digit
  String,  // "any text", without the quotes
  Symbol,  // ( ) [ ] { } , = : | -> .. * + - / @ ;
  End,
};

struct Token {
  TokenKind kind = TokenKind::End;
  std::string text;
  int begin = 0;
  int end = 0;
  bool first_on_line = false;
};

/// Cuts text into tokens once; parsers then peek and take. `#` and `//` start comments.
class Scanner {
 public:
  static Result<Scanner> scan(SourceFilePtr file);

  const Token& peek(size_t ahead = 0) const;
  Token take();
  bool at_end() const { return peek().kind == TokenKind::End; }
  /// True if the next token starts a new line, or there is none.
  bool at_line_start() const { return at_end() || peek().first_on_line; }

  bool is_symbol(std::string_view symbol, size_t ahead = 0) const;
  bool is_word(std::string_view word, size_t ahead = 0) const;
  /// Takes the next token if it is this symbol (or word).
  bool accept(std::string_view symbol);
  bool accept_word(std::string_view word);

  /// Takes the symbol, or says what stands there instead. `what_for` completes "expected ')' …".
  Checked expect(std::string_view symbol, std::string_view what_for = "");
  Checked expect_word(std::string_view word);
  /// A name: a word, a quoted string, or something like `1f1b`.
  Result<std::string> name(std::string_view what);
  /// A whole number, optionally negative.
  Result<int64_t> integer(std::string_view what);
  /// Nothing else on this line.
  Checked end_of_line();

  SourceRange here() const { return range(peek()); }
  SourceRange range(const Token& token) const { return {file_, token.begin, token.end}; }
  /// From the start of `first` to the end of the last token taken.
  SourceRange range_from(const Token& first) const { return {file_, first.begin, last_end_}; }
  const SourceFilePtr& file() const { return file_; }
  /// The diagnostic for the next token: `expected WHAT, found 'TOKEN'`.
  Diagnostic unexpected(std::string_view what) const;

 private:
  SourceFilePtr file_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  int last_end_ = 0;
};

/// The text as a name in our text forms: as it is if it scans as one word, else quoted.
std::string as_name(std::string_view text);

/// A whole number written in decimal, or nothing if it is malformed or does not fit.
std::optional<int64_t> parse_integer(std::string_view text);

}  // namespace piper
