// Tables of published results: comma-separated, with quotes around cells that contain commas.
#pragma once

#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace piper {

/// All rows, the heading first; none if there is no such file.
inline std::vector<std::vector<std::string>> read_csv(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> cells;
    std::string cell;
    bool quoted = false;
    for (const char c : line) {
      if (c == '"')
        quoted = !quoted;
      else if (c == ',' && !quoted)
        cells.push_back(std::exchange(cell, ""));
      else
        cell += c;
    }
    cells.push_back(cell);
    rows.push_back(std::move(cells));
  }
  return rows;
}

}  // namespace piper
