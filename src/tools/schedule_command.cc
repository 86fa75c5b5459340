#include <fmt/format.h>

#include "base/scanner.h"
#include "base/suggest.h"
#include "base/text_table.h"
#include "compile/grid.h"
#include "compile/timeline_of.h"
#include "schedule/json_schedule.h"
#include "schedule/schedule_text.h"
#include "schedule/timelines/as_schedule.h"
#include "schedule/timelines/csv.h"
#include "schedule/timelines/library.h"
#include "schedule/timelines/load_timeline.h"
#include "schedule/timelines/lower.h"
#include "schedule/timelines/notation.h"
#include "tools/commands.h"

namespace piper {
namespace {

std::string library_table() {
  TextTable table({"name", "placement", "stages per rank", "sizes", "bubble", "activations kept"});
  for (const TimelineInfo& info : timeline_library())
    table.add({info.name, std::string(name(info.placement)),
               fmt::format("{}{}", info.takes_stages_per_rank ? "v, usually " : "", info.default_stages_per_rank),
               info.sizes, info.bubble, info.memory});
  return table.print();
}

/// `F=1,I=1,W=0.5,comm=0.1`
Result<TimelineCosts> parse_costs(const std::string& text) {
  TimelineCosts costs;
  const SourceFilePtr source = make_source("--cost", text);
  PIPER_TRY(Scanner in, Scanner::scan(source));
  do {
    const Token key = in.take();
    PIPER_CHECK(in.expect("=", "after the name of a cost"));
    const Token value = in.take();
    double* target = key.text == "F"      ? &costs.F
                     : key.text == "I"    ? &costs.I
                     : key.text == "W"    ? &costs.W
                     : key.text == "comm" ? &costs.comm
                                          : nullptr;
    if (!target)
      return error(ErrorCode::E105, in.range(key), fmt::format("unknown cost \"{}\"", key.text))
          .help(did_you_mean(key.text, {"F", "I", "W", "comm"}));
    char* end = nullptr;
    *target = std::strtod(value.text.c_str(), &end);
    if (value.kind != TokenKind::Number || *end != '\0' || !(*target >= 0) || *target > 1e12)
      return error(ErrorCode::E102, in.range(value), fmt::format("{} must be a number of at least 0", key.text))
          .help("write --cost F=1,I=1,W=1,comm=0");
  } while (in.accept(","));
  if (!in.at_end()) return in.unexpected("',' or the end");
  return costs;
}

Result<std::string> format(const ScheduleCommand& command, const Timeline& timeline) {
  if (command.communication)
    return command.format == "csv" ? print_csv(lower(timeline)) : print_notation(lower(timeline));
  if (command.format == "csv") return print_csv(timeline);
  if (command.format == "piper") {
    PIPER_TRY(const Schedule schedule, as_schedule(timeline, {}));
    return print(schedule);
  }
  if (command.format == "json") return print_json_schedule(as_original_schedule(timeline));
  const std::vector<TimedRow> rows = timed_rows(timeline, command.request.costs.value_or(TimelineCosts{}));
  if (command.format == "timeline") return print_timeline(rows);
  return print_grid(rows, {command.columns, command.color ? GridColor::Ansi : GridColor::None, GridTime::Units});
}

/// A timeline of the library, or the passes of a file.
Result<Timeline> timeline_for(const ScheduleCommand& command) {
  if (command.from.empty()) return make_timeline(command.name, command.request, {});
  PIPER_TRY(const ParsedTimeline parsed, load_timeline(command.from));
  return strip(parsed.actions);
}

}  // namespace

int run(const ScheduleCommand& given) {
  ScheduleCommand command = given;
  if (command.list) {
    put(library_table());
    return fine;
  }
  if (!command.costs.empty()) {
    auto costs = parse_costs(command.costs);
    if (!costs) return report_text(costs.error(), command.color);
    command.request.costs = *costs;
  }
  auto timeline = timeline_for(command);
  if (!timeline) return report_text(timeline.error(), command.color);
  auto text = format(command, *timeline);
  if (!text) return report_text(text.error(), command.color);
  put(*text);
  return fine;
}

}  // namespace piper
