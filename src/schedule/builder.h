// Schedules from C++, with the verbs of the text form. For loops and computed sizes; `print` shows the text.
//
//   ScheduleBuilder build;
//   build.mesh({{"pp", 2}, {"dp", 4}})
//       .split({.parts = 8})
//       .place({.devices = along("pp"), .stages = 4, .shape = StageShape::V})
//       .replicate({.devices = along("dp"), .zero = 1})
//       .shard({.what = where("experts"), .devices = along("dp")});
//   for (int mb = 0; mb + 1 < 8; ++mb)
//     build.order({where("stage", 0).and_("mb", mb).pass("F"), where("stage", 0).and_("mb", mb + 1).pass("F")});
//   std::string text = print(build.build());
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "schedule/schedule.h"

namespace piper {

/// A filter that grows by conditions: where("layer", 0, 3).and_("mb", 2).pass("F") is {layer=0..3, mb=2, pass=F}.
class Selection {
 public:
  Selection and_(std::string tag) const;                                // tag=*
  Selection and_(std::string tag, int index) const;                     // tag=3
  Selection and_(std::string tag, int first, int last) const;           // tag=0..3, both included
  Selection and_(std::string tag, const std::vector<int>& list) const;  // tag=[0, 2]
  Selection outside(std::string tag) const;                             // tag=none
  Selection pass(std::string word) const;                               // pass=F
  Selection comm(std::string word) const;                               // comm=gather

  operator Filter() const { return filter_; }

 private:
  Selection with(TagCondition condition) const;
  Filter filter_;
};

/// `{}`.
inline Selection everything() {
  return {};
}
/// The first condition; arguments as for Selection::and_.
template <class... Indices>
Selection where(std::string tag, Indices&&... indices) {
  return Selection().and_(std::move(tag), std::forward<Indices>(indices)...);
}
inline Selection where(std::string tag, const std::vector<int>& list) {
  return Selection().and_(std::move(tag), list);
}

DeviceChoice on(DeviceList devices);                  // devices=[0, 1]
DeviceChoice on_each(std::vector<DeviceList> lists);  // devices=[0, 1] | [2, 3]
DeviceChoice at(const Selection& coordinates);        // mesh={pp=0}
/// along("dp"), along("edp", "ep").
template <class... Names>
DeviceChoice along(Names... names) {
  return {{}, {}, {std::string(names)...}, {}};
}

/// One place in an order: a selection, or overlapped({…}).
struct OrderStep {
  OrderStep(const Selection& one) : element{{one}, {}} {}
  explicit OrderStep(OrderElement several) : element(std::move(several)) {}
  OrderElement element;
};
/// Parts that may run interleaved: a bracket in the text form.
OrderStep overlapped(const std::vector<Selection>& parts);

/// Adds one directive per call; its arguments are the members of its struct, with the defaults of the text form. Places
/// in messages are those of the printed text, see `checked`.
class ScheduleBuilder {
 public:
  ScheduleBuilder& devices(int count) { return add(Devices{count}); }
  ScheduleBuilder& mesh(std::vector<MeshAxis> axes) { return add(Mesh{std::move(axes)}); }
  ScheduleBuilder& split(Split split) { return add(std::move(split)); }
  ScheduleBuilder& place(Place place) { return add(std::move(place)); }
  ScheduleBuilder& lose(Lose lose) { return add(std::move(lose)); }
  ScheduleBuilder& replicate(Replicate replicate) { return add(std::move(replicate)); }
  ScheduleBuilder& shard(Shard shard) { return add(std::move(shard)); }
  ScheduleBuilder& recompute(Recompute recompute) { return add(std::move(recompute)); }
  ScheduleBuilder& precision(Precision precision) { return add(std::move(precision)); }
  ScheduleBuilder& prefetch(Prefetch prefetch) { return add(std::move(prefetch)); }
  ScheduleBuilder& order(const std::vector<OrderStep>& steps);
  ScheduleBuilder& use(Use use) { return add(std::move(use)); }

  /// The schedule as it was put together.
  Schedule build() const { return schedule_; }
  /// The schedule after a trip through its text: arguments out of range are refused as in a file. For untrusted input.
  Result<Schedule> checked() const;

 private:
  ScheduleBuilder& add(DirectiveBody body);
  Schedule schedule_;
};

}  // namespace piper
