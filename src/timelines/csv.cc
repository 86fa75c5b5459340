#include "timelines/csv.h"

#include "timelines/read_actions.h"

namespace piper {
namespace {

constexpr TimelineForm csv = {
    .separators = ",", .pair_mark = "OVERLAP_F_B", .example = "0F3 or (0F5;1B2)OVERLAP_F_B", .has_labels = false};

bool is_pair(const TimelineAction& action) {
  const auto* cell = std::get_if<TimelineCell>(&action);
  return cell && cell->second;
}

}  // namespace

std::string print_csv(const Timeline& timeline) {
  return print_csv(as_actions(timeline));
}

std::string print_csv(const ActionTimeline& timeline) {
  std::string text;
  for (const auto& row : timeline.ranks) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      text += print(row[i]);
      if (is_pair(row[i])) text += csv.pair_mark;
    }
    text += '\n';
  }
  return text;
}

Result<ParsedTimeline> parse_csv_actions(const SourceFilePtr& file) {
  return read_actions(file, csv);
}

Result<Timeline> parse_csv(const SourceFilePtr& file) {
  PIPER_TRY(const ParsedTimeline parsed, parse_csv_actions(file));
  return strip(parsed.actions);
}

}  // namespace piper
