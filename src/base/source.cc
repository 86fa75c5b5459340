#include "base/source.h"

#include <fmt/format.h>

#include <algorithm>

namespace piper {

SourceFilePtr make_source(std::string name, std::string text) {
  return std::make_shared<const SourceFile>(SourceFile{std::move(name), std::move(text)});
}

SourcePosition position_of(const SourceRange& range) {
  const std::string_view text = range.file->text;
  const size_t begin = std::min(static_cast<size_t>(range.begin), text.size());
  const size_t previous = begin == 0 ? std::string_view::npos : text.rfind('\n', begin - 1);
  const size_t line_start = previous == std::string_view::npos ? 0 : previous + 1;
  const size_t line_end = std::min(text.find('\n', begin), text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<long>(line_start), '\n');
  return {static_cast<int>(line), static_cast<int>(begin - line_start) + 1,
          text.substr(line_start, line_end - line_start)};
}

std::string short_place(const SourceRange& range) {
  if (!range) return "-";
  return fmt::format("{}:{}", range.file->name, position_of(range).line);
}

}  // namespace piper
