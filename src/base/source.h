// Text that came from a user, and places in it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace piper {

/// A file (or a piece of text with a name) that was read. Shared by all places that point into it.
struct SourceFile {
  std::string name;
  std::string text;
};
using SourceFilePtr = std::shared_ptr<const SourceFile>;

SourceFilePtr make_source(std::string name, std::string text);

/// A half-open range of bytes in a file. Without a file: nowhere (made by the program itself).
struct SourceRange {
  SourceFilePtr file;
  int begin = 0;
  int end = 0;

  explicit operator bool() const { return file != nullptr; }
  /// Where something was written never makes it different from its equal.
  friend bool operator==(const SourceRange&, const SourceRange&) { return true; }
};

/// Line and column, both from 1, and the text of the line.
struct SourcePosition {
  int line = 1;
  int column = 1;
  std::string_view line_text;
};
SourcePosition position_of(const SourceRange& range);

/// `file:line`, or `-` for nowhere.
std::string short_place(const SourceRange& range);

}  // namespace piper
