// Schedules from C++, with the verbs of the text form. For loops and computed sizes; `print` shows the text.
//
//   ScheduleBuilder build;
//   build.mesh({{"pp", 2}, {"dp", 4}})
//       .split(8, "mb")
//       .place(everything(), along("pp"), {.stages = 4, .shape = StageShape::V})
//       .replicate(everything(), along("dp"), {.zero = 1})
//       .shard(where("experts"), along("dp"));
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

/// The optional arguments of place, with the defaults of the text form.
struct PlaceOptions {
  int stages = 0;
  std::vector<int> at = {};
  StageShape shape = StageShape::Loop;
  std::vector<int> ranks = {};
  std::optional<int> stage = {};
  std::string as = Place{}.as;
  std::string stream = Place{}.stream;
  std::string transfers = Place{}.transfers;
};

/// The optional arguments of replicate; `bucket` in bytes.
struct ReplicateOptions {
  int zero = 0;
  int64_t bucket = Replicate{}.bucket;
  std::string gather_stream = Replicate{}.gather_stream;
  std::string reduce_stream = Replicate{}.reduce_stream;
  Release release = Release::Use;
};

/// The optional arguments of shard.
struct ShardOptions {
  std::vector<ShardSeed> parameters = {};
  bool vocabulary = false;
  bool sequence = false;
  bool regather = false;
  std::string stream = {};
};

/// The optional arguments of use.
struct UseOptions {
  std::string stages = Use{}.stages;
  std::string microbatches = Use{}.microbatches;
  std::optional<int> group = {};
  std::optional<int> memory_limit = {};
  Backward backward = Backward::Split;
  std::string file = {};  // for use("file")
};

/// One place in an order: a selection, or overlapped({…}).
struct OrderStep {
  OrderStep(const Selection& one) : element{{one}, {}} {}
  explicit OrderStep(OrderElement several) : element(std::move(several)) {}
  OrderElement element;
};
/// Parts that may run interleaved: a bracket in the text form.
OrderStep overlapped(const std::vector<Selection>& parts);

/// Adds one directive per call. Places in messages are those of the printed text, see `checked`.
class ScheduleBuilder {
 public:
  ScheduleBuilder& devices(int count);
  ScheduleBuilder& mesh(std::vector<MeshAxis> axes);
  ScheduleBuilder& split(int parts, std::string as = "mb");
  ScheduleBuilder& place(const Selection& what, DeviceChoice devices, PlaceOptions options = {});
  ScheduleBuilder& replicate(const Selection& what, DeviceChoice devices, ReplicateOptions options = {});
  ScheduleBuilder& shard(const Selection& what, DeviceChoice devices, ShardOptions options = {});
  ScheduleBuilder& recompute(const Selection& what);
  ScheduleBuilder& prefetch(const Selection& what, int distance = 1);
  ScheduleBuilder& prefetch_all(const Selection& what);  // distance=all
  ScheduleBuilder& order(const std::vector<OrderStep>& steps);
  ScheduleBuilder& use(std::string timeline, UseOptions options = {});

  /// The schedule as it was put together.
  Schedule build() const { return schedule_; }
  /// The schedule after a trip through its text: arguments out of range are refused as in a file. For untrusted input.
  Result<Schedule> checked() const;

 private:
  ScheduleBuilder& add(DirectiveBody body);
  Schedule schedule_;
};

}  // namespace piper
