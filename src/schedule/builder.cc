#include "schedule/builder.h"

#include "schedule/schedule_text.h"

namespace piper {

Selection Selection::with(TagCondition condition) const {
  Selection out = *this;
  out.filter_.conditions.push_back(std::move(condition));
  return out;
}

Selection Selection::and_(std::string tag) const {
  return with({std::move(tag), true, {}, {}, {}});
}

Selection Selection::and_(std::string tag, int index) const {
  return and_(std::move(tag), index, index);
}

Selection Selection::and_(std::string tag, int first, int last) const {
  return with({std::move(tag), false, {{first, last}}, {}, {}});
}

Selection Selection::and_(std::string tag, const std::vector<int>& list) const {
  std::vector<IndexRange> indices;
  for (const int index : list) indices.push_back({index, index});
  return with({std::move(tag), false, std::move(indices), {}, {}});
}

Selection Selection::outside(std::string tag) const {
  return with({std::move(tag), false, {}, {"none"}, {}});
}

Selection Selection::pass(std::string word) const {
  return with({"pass", false, {}, {std::move(word)}, {}});
}

Selection Selection::comm(std::string word) const {
  return with({"comm", false, {}, {std::move(word)}, {}});
}

DeviceChoice on(DeviceList devices) {
  return on_each({std::move(devices)});
}

DeviceChoice on_each(std::vector<DeviceList> lists) {
  return {std::move(lists), {}, {}, {}};
}

DeviceChoice at(const Selection& coordinates) {
  return {{}, Filter(coordinates), {}, {}};
}

OrderStep overlapped(const std::vector<Selection>& parts) {
  return OrderStep(OrderElement{{parts.begin(), parts.end()}, {}});
}

ScheduleBuilder& ScheduleBuilder::add(DirectiveBody body) {
  schedule_.directives.push_back({std::move(body), {}});
  return *this;
}

ScheduleBuilder& ScheduleBuilder::order(const std::vector<OrderStep>& steps) {
  Order order;
  for (const OrderStep& step : steps) order.elements.push_back(step.element);
  return add(std::move(order));
}

Result<Schedule> ScheduleBuilder::checked() const {
  return parse_schedule(make_source("schedule from C++", print(schedule_)));
}

}  // namespace piper
