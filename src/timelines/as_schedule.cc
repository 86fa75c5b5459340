#include "timelines/as_schedule.h"

#include <fmt/format.h>

#include "timelines/rank_table.h"

namespace piper {
namespace {

TagCondition at(const std::string& tag, int index) {
  return {tag, false, {{index, index}}, {}, {}};
}

/// The first microbatch that goes another way than microbatch 0; their number if all go one way.
int first_on_other_way(const RankTable& ranks) {
  for (int m = 1; m < ranks.microbatches(); ++m)
    for (int s = 0; s < ranks.stages(); ++s)
      if (ranks.rank(s, m) != ranks.rank(s, 0)) return m;
  return ranks.microbatches();
}

/// The second half of the microbatches runs from the last rank to the first, one stage on each.
bool is_two_way(const RankTable& ranks, int devices) {
  if (ranks.stages() != devices || ranks.microbatches() % 2 != 0) return false;
  for (int m = 0; m < ranks.microbatches(); ++m)
    for (int s = 0; s < devices; ++s)
      if (ranks.rank(s, m) != (m < ranks.microbatches() / 2 ? s : devices - 1 - s)) return false;
  return true;
}

}  // namespace

std::vector<Order> orders_of(const Timeline& timeline, const std::string& stage, const std::string& microbatch) {
  const auto filter = [&](const TimelineOp& op) {
    return Filter{{at(stage, op.stage), at(microbatch, op.microbatch),
                   TagCondition{"pass", false, {}, {std::string(name(op.pass))}, {}}},
                  {}};
  };
  std::vector<Order> orders;
  for (const auto& row : timeline.ranks) {
    Order order;
    for (const TimelineCell& cell : row) {
      order.elements.push_back({{filter(cell.first)}, {}});
      if (cell.second) order.elements.back().parts.push_back(filter(*cell.second));
    }
    const bool alone = order.elements.size() < 2 && (row.empty() || !row[0].second);  // nothing to order
    if (!alone) orders.push_back(std::move(order));
  }
  return orders;
}

Result<Place> place_of(const Timeline& timeline, const SourceRange& where) {
  const RankTable ranks(timeline);
  const int devices = static_cast<int>(timeline.ranks.size());
  Place place;
  place.devices.along = {"pp"};
  place.stages = ranks.stages();
  if (const int other = first_on_other_way(ranks); other < ranks.microbatches()) {
    place.shape = StageShape::TwoWay;
    if (is_two_way(ranks, devices)) return place;
    return error(ErrorCode::E313, where,
                 fmt::format("microbatches 0 and {} take different ways through the ranks, but not as shape=two_way: "
                             "stage s on rank s, and on rank {}-s for the second half of the microbatches",
                             other, devices - 1))
        .help("place the stages in a schedule of your own, and order them there: use file(\"…\")");
  }
  for (int s = 0; s < ranks.stages(); ++s) place.ranks.push_back(ranks.rank(s, 0));
  for (const StageShape shape : {StageShape::Loop, StageShape::V}) {
    std::vector<int> regular;
    for (int s = 0; s < ranks.stages(); ++s) regular.push_back(stage_coordinate(shape, s, devices));
    if (regular != place.ranks || ranks.stages() % devices != 0) continue;
    place.shape = shape;
    place.ranks.clear();
    break;
  }
  return place;
}

Result<Schedule> pipeline_of(const Timeline& timeline, const SourceRange& where) {
  PIPER_TRY(Place place, place_of(timeline, where));
  Schedule schedule;
  schedule.directives.push_back({Mesh{{{"pp", static_cast<int>(timeline.ranks.size())}}}, {}});
  schedule.directives.push_back({Split{RankTable(timeline).microbatches(), "mb"}, {}});
  schedule.directives.push_back({std::move(place), {}});
  return schedule;
}

Result<Schedule> as_schedule(const Timeline& timeline, const SourceRange& where) {
  PIPER_TRY(Schedule schedule, pipeline_of(timeline, where));
  for (Order& order : orders_of(timeline, "stage", "mb")) schedule.directives.push_back({std::move(order), {}});
  return schedule;
}

Schedule as_original_schedule(const Timeline& timeline) {
  const RankTable ranks(timeline);
  const int one_way = first_on_other_way(ranks);
  Schedule schedule;
  schedule.directives.push_back({Devices{static_cast<int>(timeline.ranks.size())}, {}});
  schedule.directives.push_back({Split{ranks.microbatches(), "MB"}, {}});
  for (int s = 0; s < ranks.stages(); ++s)
    for (int m = 0; m < ranks.microbatches(); ++m) {
      Place place;
      place.what.conditions = {at("PP", s)};
      if (one_way < ranks.microbatches()) place.what.conditions.push_back(at("MB", m));
      place.devices.lists = {{ranks.rank(s, m)}};
      schedule.directives.push_back({std::move(place), {}});
      if (one_way == ranks.microbatches()) break;  // all of them at once
    }
  for (Order& order : orders_of(timeline, "PP", "MB")) schedule.directives.push_back({std::move(order), {}});
  return schedule;
}

}  // namespace piper
