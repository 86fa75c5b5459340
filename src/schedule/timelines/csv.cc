#include "schedule/timelines/csv.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

namespace piper {
namespace {

constexpr std::string_view overlap_mark = "OVERLAP_F_B";

std::string_view trim(std::string_view text) {
  constexpr std::string_view blank = " \t\r";
  const size_t begin = text.find_first_not_of(blank);
  return begin == text.npos ? text.substr(0, 0) : text.substr(begin, text.find_last_not_of(blank) + 1 - begin);
}

std::optional<Pass> pass_of(char letter) {
  switch (letter) {
    case 'F':
      return Pass::F;
    case 'B':
      return Pass::B;
    case 'I':
      return Pass::BI;
    case 'W':
      return Pass::BW;
    default:
      return std::nullopt;
  }
}

/// A whole number at the start of `text`, which then begins after it.
std::optional<int> take_number(std::string_view& text) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

/// `2I3`
std::optional<TimelineOp> read_op(std::string_view text) {
  text = trim(text);
  const std::optional<int> stage = take_number(text);
  if (!stage || text.empty()) return std::nullopt;
  const std::optional<Pass> pass = pass_of(text.front());
  text.remove_prefix(1);
  const std::optional<int> microbatch = take_number(text);
  if (!pass || !microbatch || !text.empty()) return std::nullopt;
  return TimelineOp{*stage, *pass, *microbatch};
}

/// `2I3` or `(0F5;1B2)OVERLAP_F_B`
std::optional<TimelineCell> read_cell(std::string_view text) {
  if (!text.starts_with('(')) {
    const std::optional<TimelineOp> op = read_op(text);
    return op ? std::optional(TimelineCell{*op, {}}) : std::nullopt;
  }
  const size_t middle = text.find(';');
  const size_t end = text.find(')');
  if (end == text.npos || middle == text.npos || middle > end || text.substr(end + 1) != overlap_mark)
    return std::nullopt;
  const std::optional<TimelineOp> first = read_op(text.substr(1, middle - 1));
  const std::optional<TimelineOp> second = read_op(text.substr(middle + 1, end - middle - 1));
  return first && second ? std::optional(TimelineCell{*first, *second}) : std::nullopt;
}

Diagnostic unreadable(const SourceFilePtr& file, std::string_view cell) {
  const int begin = static_cast<int>(cell.data() - file->text.data());
  return error(ErrorCode::E101, {file, begin, begin + static_cast<int>(cell.size())},
               fmt::format("expected a pass such as 0F3 or (0F5;1B2)OVERLAP_F_B, found '{}'", cell))
      .help("write stage, one of F B I W, microbatch; leave communication out");
}

Result<std::vector<TimelineCell>> parse_row(const SourceFilePtr& file, std::string_view line) {
  std::vector<TimelineCell> row;
  while (true) {
    const size_t comma = line.find(',');
    const std::string_view text = trim(line.substr(0, comma));
    if (!text.empty()) {
      const std::optional<TimelineCell> cell = read_cell(text);
      if (!cell) return unreadable(file, text);
      row.push_back(*cell);
    }
    if (comma == line.npos) return row;
    line.remove_prefix(comma + 1);
  }
}

}  // namespace

std::string print_csv(const Timeline& timeline) {
  std::string text;
  for (const auto& row : timeline.ranks) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      text += print(row[i]);
      if (row[i].second) text += overlap_mark;
    }
    text += '\n';
  }
  return text;
}

Result<Timeline> parse_csv(const SourceFilePtr& file) {
  Timeline timeline;
  std::string_view rest = file->text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    PIPER_TRY(auto row, parse_row(file, rest.substr(0, end)));
    timeline.ranks.push_back(std::move(row));
    if (end == rest.npos) break;
    rest.remove_prefix(end + 1);
  }
  if (timeline.ranks.empty()) return error(ErrorCode::E101, {file, 0, 0}, "expected one line per rank, found nothing");
  return timeline;
}

}  // namespace piper
