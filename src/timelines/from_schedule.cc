#include "timelines/from_schedule.h"

#include <fmt/format.h>

#include <optional>

#include "schedule/schedule_text.h"

namespace piper {
namespace {

std::optional<Pass> pass_called(const std::string& word) {
  for (const Pass pass : {Pass::F, Pass::B, Pass::BI, Pass::BW})
    if (word == name(pass)) return pass;
  return std::nullopt;
}

std::optional<int> single(const TagCondition& condition) {
  if (condition.any || condition.indices.size() != 1 || condition.indices[0].low != condition.indices[0].high)
    return std::nullopt;
  return condition.indices[0].low;
}

/// {stage=2, mb=3, pass=BI} is 2I3.
Result<TimelineOp> op_of(const Filter& filter, const std::string& microbatches, const SourceRange& where) {
  std::optional<int> stage, microbatch;
  std::optional<Pass> pass;
  for (const TagCondition& condition : filter.conditions) {
    if (condition.tag == "pass" && condition.words.size() == 1)
      pass = pass_called(condition.words[0]);
    else if (condition.tag == microbatches)
      microbatch = single(condition);
    else if (!stage)
      stage = single(condition);
    else
      stage = microbatch = std::nullopt;  // a third tag
  }
  if (filter.conditions.size() == 3 && stage && microbatch && pass) return TimelineOp{*stage, *pass, *microbatch};
  return error(ErrorCode::E105, filter.where ? filter.where : where,
               fmt::format("{} is no cell of a timeline: it must name one stage, one {} and one pass", print(filter),
                           microbatches))
      .help(fmt::format("write {{stage=0, {}=0, pass=F}}; any other order is compiled, not drawn", microbatches));
}

}  // namespace

Result<ParsedTimeline> timeline_of_orders(const Schedule& schedule, const SourceFilePtr& file) {
  std::string microbatches = "mb";
  ParsedTimeline out;
  out.source.whole = {file, 0, 1};
  for (const Directive& directive : schedule.directives) {
    if (const auto* split = std::get_if<Split>(&directive.body)) microbatches = split->as;
    if (const auto* use = std::get_if<Use>(&directive.body))
      return error(ErrorCode::E105, directive.where,
                   fmt::format("use {} is not written out; a timeline needs its orders", use->timeline))
          .help(
              fmt::format("print them: piper schedule {} --ranks P --microbatches M, or piper compile --emit schedule",
                          use->timeline));
    const auto* order = std::get_if<Order>(&directive.body);
    if (!order) continue;
    auto& row = out.actions.ranks.emplace_back();
    auto& places = out.source.cells.emplace_back();
    for (const OrderElement& element : order->elements) {
      const SourceRange where = element.where ? element.where : directive.where;
      if (element.parts.size() > 2)
        return error(ErrorCode::E105, where, "more than two overlapped parts are no cell of a timeline")
            .help("overlap a forward and a backward");
      TimelineCell cell;
      PIPER_TRY(cell.first, op_of(element.parts[0], microbatches, where));
      if (element.parts.size() == 2) {
        PIPER_TRY(cell.second, op_of(element.parts[1], microbatches, where));
      }
      places.push_back({where.begin, where.end, static_cast<int>(row.size())});
      row.push_back(cell);
    }
  }
  if (out.actions.ranks.empty())
    return error(ErrorCode::E104, {file, 0, 1}, "the schedule has no orders, so it is no timeline")
        .help("a timeline is one order per rank: order({stage=0, mb=0, pass=F}, …)");
  return out;
}

}  // namespace piper
