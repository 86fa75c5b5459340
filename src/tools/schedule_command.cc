#include <fmt/format.h>

#include <algorithm>

#include "base/text_table.h"
#include "compile/grid.h"
#include "compile/timeline_of.h"
#include "schedule/json_schedule.h"
#include "schedule/schedule_text.h"
#include "timelines/as_schedule.h"
#include "timelines/clock.h"
#include "timelines/csv.h"
#include "timelines/library.h"
#include "timelines/list.h"
#include "timelines/load_timeline.h"
#include "timelines/notation.h"
#include "timelines/with_communication.h"
#include "tools/commands.h"
#include "tools/parse_costs.h"
#include "tools/schedule_svg.h"

namespace piper {
namespace {

std::string library_table() {
  TextTable table({"name", "placement", "stages per rank", "sizes", "bubble", "activations kept"});
  for (const TimelineInfo& info : timeline_library())
    table.add({info.name, info.takes_placement ? "any" : std::string(name(info.placement)),
               fmt::format("{}{}", info.takes_stages_per_rank ? "v, usually " : "", info.default_stages_per_rank),
               info.sizes, info.bubble, info.memory});
  return table.print();
}

/// A lane for every rank; its costs are taken for seconds.
Trace as_trace(const std::vector<TimedRow>& rows) {
  Trace trace;
  trace.streams = {"compute"};
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    trace.lanes.push_back({static_cast<int>(rank)});
    for (const auto& [cell, start, end] : rows[rank].cells) {
      trace.seconds = std::max(trace.seconds, end);
      const auto add = [&](const TimelineOp& op, double from, double to) {
        TraceEvent event;
        event.lane = static_cast<int>(rank);
        event.op = static_cast<int>(trace.events.size());
        event.name = print(op);
        event.kind = "run";
        event.pass = name(op.pass);
        event.slice = op.microbatch;
        event.start = from;
        event.end = to;
        trace.events.push_back(std::move(event));
      };
      add(cell.first, start, end);
      if (cell.second) add(*cell.second, start, end);
    }
  }
  return trace;
}

Result<std::string> format(const ScheduleCommand& command, const Timeline& timeline) {
  if (command.communication)
    return command.format == "csv" ? print_csv(with_transfers(timeline)) : print_notation(with_transfers(timeline));
  if (command.format == "csv") return print_csv(timeline);
  if (command.format == "piper") {
    PIPER_TRY(const Schedule schedule, as_schedule(timeline, {}));
    return print(schedule);
  }
  if (command.format == "json") return print_json_schedule(as_original_schedule(timeline));
  const std::vector<TimedRow> rows = timed_rows(timeline, command.request.costs.value_or(TimelineCosts{}));
  if (command.format == "timeline") return print_timeline(rows);
  if (command.format == "svg") return schedule_svg(as_trace(rows), {command.width, PictureTime::Units});
  return print_grid(rows, {command.columns, command.color ? GridColor::Ansi : GridColor::None, GridTime::Units});
}

/// How good the search was: `makespan 120, lower bound 120 (1.000)`.
std::string quality(const Timeline& timeline, const TimelineRequest& request) {
  double makespan = 0;
  for (const auto& row : run_clock(timeline, request.costs.value_or(TimelineCosts{})))
    if (!row.empty()) makespan = std::max(makespan, row.back().end);
  const double bound = lower_bound(timelines::ListPasses(timelines::list_problem(request)));
  return fmt::format("makespan {:.6g}, lower bound {:.6g} ({:.3f})\n", makespan, bound,
                     bound > 0 ? makespan / bound : 1.0);
}

/// A timeline of the library, or the passes of a file.
Result<Timeline> timeline_for(const ScheduleCommand& command) {
  if (command.from.empty()) return make_timeline(command.name, command.request, {});
  PIPER_TRY(const ParsedTimeline parsed, load_timeline(command.from));
  Timeline timeline = strip(parsed.actions);
  if (command.request.costs) PIPER_CHECK(check_costs(timeline, *command.request.costs, {}));
  return timeline;
}

}  // namespace

int run(const ScheduleCommand& given) {
  ScheduleCommand command = given;
  if (command.list) {
    put(library_table());
    return fine;
  }
  if (!command.costs.empty()) {
    auto option = parse_costs(command.costs, OverlapCost::Refused);
    if (!option) return report_text(option.error(), command.color);
    command.request.costs = std::move(option->costs);
  }
  if (!command.placement.empty()) command.request.placement = placement_named(command.placement);
  if (command.backward == "whole") command.request.backward = Backward::Whole;
  auto timeline = timeline_for(command);
  if (!timeline) return report_text(timeline.error(), command.color);
  auto text = format(command, *timeline);
  if (!text) return report_text(text.error(), command.color);
  put(*text);
  if (const TimelineInfo* info = find_timeline(command.name);
      info && info->takes_placement) {  // a picture is for people; what programs read stays as it is
    command.request.stages_per_rank = stages_per_rank(*info, command.request);
    const std::string line = quality(*timeline, command.request);
    if (command.format == "grid")
      put(line);
    else
      fmt::print(stderr, "{}", line);
  }
  return fine;
}

}  // namespace piper
