// Reads JSON from front to back without building a tree, for files of hundreds of megabytes. The first thing that is
// wrong sticks: from then on every list is at its end and every value is empty, so that callers ask once, at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace piper {

class JsonReader {
 public:
  explicit JsonReader(const SourceFilePtr& file);

  /// The next member of the object whose '{' was opened; false behind its '}'.
  bool member(std::string_view& key);
  /// The next element of the array whose '[' was opened; false behind its ']'.
  bool element();
  void open_object(std::string_view what);
  void open_array(std::string_view what);

  /// Valid until the next text or member is read.
  std::string_view text(std::string_view what);
  /// Times 10^shift, exactly.
  double number(std::string_view what, int shift = 0);
  int64_t integer(std::string_view what, int64_t least, int64_t most);
  /// Any value, whatever it is.
  void skip();
  /// Nothing more may follow.
  void end();

  /// Where the next value starts; jump goes back there.
  size_t next();
  void jump(size_t to) { at_ = to; }
  bool looking_at(std::string_view text) { return all_.substr(next()).starts_with(text); }
  bool at_end() { return next() >= all_.size(); }
  /// What was read from there on.
  std::string_view since(size_t begin) const { return all_.substr(begin, at_ - begin); }

  bool failed() const { return problem_.has_value(); }
  Diagnostic take_problem() { return std::move(*problem_); }
  /// Only the first counts.
  void refuse(ErrorCode code, size_t begin, std::string message, std::string help = "");
  /// The value that was read last cannot be (E503).
  void refuse_last(std::string message, std::string help = "write the trace again instead of changing it by hand");

 private:
  void bad_json(std::string message);
  bool take(char c);
  void open(char bracket, std::string_view what);
  bool comma_or(char close);
  std::string_view string_token();
  bool escape();
  void append_code_point(uint32_t code);
  std::optional<uint32_t> hexadecimal();
  std::string_view number_token(std::string_view what);
  std::string shown() const;

  static constexpr int deepest = 32;
  const SourceFilePtr file_;
  const std::string_view all_;
  size_t at_ = 0, last_ = 0;
  int depth_ = 0;
  bool first_[deepest + 1] = {};
  std::string scratch_;
  std::optional<Diagnostic> problem_;
};

}  // namespace piper
