#include "schedule/timelines/as_schedule.h"

#include "base/invariant.h"

namespace piper {
namespace {

TagCondition at(const std::string& tag, int low, int high) {
  return {tag, false, {{low, high}}, {}, {}};
}

}  // namespace

StageShape shape_of(Placement placement) {
  switch (placement) {
    case Placement::Line:
    case Placement::Loop:
      return StageShape::Loop;
    case Placement::V:
    case Placement::W:
      return StageShape::V;
    case Placement::TwoWay:
      return StageShape::TwoWay;
  }
  internal_error("a placement has a shape");
}

std::vector<Order> orders_of(const Timeline& timeline, const std::string& stage, const std::string& microbatch) {
  const auto filter = [&](const TimelineOp& op) {
    return Filter{{at(stage, op.stage, op.stage), at(microbatch, op.microbatch, op.microbatch),
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
    orders.push_back(std::move(order));
  }
  return orders;
}

Schedule as_schedule(const Timeline& timeline, Placement placement, int stages, int microbatches) {
  Place place;
  place.devices.along = {"pp"};
  place.stages = stages;
  place.shape = shape_of(placement);
  Schedule schedule;
  schedule.directives.push_back({Mesh{{{"pp", static_cast<int>(timeline.ranks.size())}}}, {}});
  schedule.directives.push_back({Split{microbatches, "mb"}, {}});
  schedule.directives.push_back({place, {}});
  for (Order& order : orders_of(timeline, "stage", "mb")) schedule.directives.push_back({std::move(order), {}});
  return schedule;
}

Schedule as_original_schedule(const Timeline& timeline, Placement placement, int stages, int microbatches) {
  const int ranks = static_cast<int>(timeline.ranks.size());
  Schedule schedule;
  schedule.directives.push_back({Devices{ranks}, {}});
  schedule.directives.push_back({Split{microbatches, "MB"}, {}});
  const auto put = [&](int stage, int rank, int low, int high) {
    for (int m = low; m <= high; ++m) {
      Place place;
      place.what.conditions = {at("PP", stage, stage)};
      if (low != 0 || high != microbatches - 1) place.what.conditions.push_back(at("MB", m, m));
      place.devices.lists = {{rank}};
      schedule.directives.push_back({std::move(place), {}});
      if (low == 0 && high == microbatches - 1) break;  // all of them at once
    }
  };
  for (int s = 0; s < stages; ++s) {
    if (placement != Placement::TwoWay) {
      put(s, rank_of(placement, s, ranks), 0, microbatches - 1);
      continue;
    }
    put(s, rank_of(placement, s, ranks, 0), 0, microbatches / 2 - 1);
    put(s, rank_of(placement, s, ranks, 1), microbatches / 2, microbatches - 1);
  }
  for (Order& order : orders_of(timeline, "PP", "MB")) schedule.directives.push_back({std::move(order), {}});
  return schedule;
}

}  // namespace piper
