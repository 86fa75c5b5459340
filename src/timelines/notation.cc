#include "timelines/notation.h"

#include "timelines/read_actions.h"

namespace piper {
namespace {

constexpr TimelineForm notation = {
    .separators = " \t", .pair_mark = "", .example = "0F3 or (0F5;1B2)", .has_labels = true};

}  // namespace

std::string print_notation(const ActionTimeline& timeline) {
  std::string text;
  for (const auto& row : timeline.ranks) {
    for (size_t i = 0; i < row.size(); ++i) text += (i > 0 ? " " : "") + print(row[i]);
    text += '\n';
  }
  return text;
}

Result<ParsedTimeline> parse_notation(const SourceFilePtr& file) {
  return read_actions(file, notation);
}

}  // namespace piper
