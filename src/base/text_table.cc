#include "base/text_table.h"

#include <algorithm>
#include <cctype>

#include "base/invariant.h"

namespace piper {

size_t display_width(const std::string& text) {
  size_t width = 0;
  bool in_escape = false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\x1b') in_escape = true;
    if (!in_escape && (byte & 0xC0) != 0x80) ++width;
    if (in_escape && std::isalpha(byte)) in_escape = false;
  }
  return width;
}

TextTable::TextTable(std::vector<std::string> header) {
  rows_.push_back(std::move(header));
}

void TextTable::add(std::vector<std::string> row) {
  invariant(row.size() == rows_[0].size(), "a table row has as many cells as the header");
  rows_.push_back(std::move(row));
}

std::string TextTable::print() const {
  const size_t columns = rows_[0].size();
  std::vector<size_t> width(columns, 0);
  std::vector<bool> number(columns, rows_.size() > 1);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < columns; ++c) {
      width[c] = std::max(width[c], display_width(rows_[r][c]));
      const char first = rows_[r][c].empty() ? '0' : rows_[r][c][0];
      if (r > 0 && !std::isdigit(static_cast<unsigned char>(first)) && first != '-' && first != '+') number[c] = false;
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < columns; ++c) {
      const std::string pad(width[c] - display_width(row[c]), ' ');
      if (c > 0) line += "  ";
      line += number[c] ? pad + row[c] : row[c] + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace piper
