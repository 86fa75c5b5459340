// Aligned columns for people.
#pragma once

#include <string>
#include <vector>

namespace piper {

/// First row is the header. Columns whose cells are all numbers (or sizes) are right-aligned.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  void add(std::vector<std::string> row);
  std::string print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// Columns that `text` takes on a terminal (UTF-8 code points, without colour escapes).
size_t display_width(const std::string& text);

}  // namespace piper
