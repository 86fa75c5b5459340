// lose(devices=[…], along=axis, replicas=n): the devices are gone. Of a placement that has some of them, the
// coordinates of the axis at which nothing is lost stay. They share every microbatch; with `replicas`, so many do, and
// as many such groups as are left take the microbatches in turn. So do the other placements of the same chunks.
//   before:  layer.0 on [0..3] (dp=4)
//   after:   lose(devices=[2], along=dp): on [0, 1, 3] (dp=3)
//            lose(devices=[2], along=dp, replicas=1): microbatch 0 on [0], 1 on [1], 2 on [3], 3 on [0], … (dp=1)
// Illegal: no such device, or lost twice (E205); no devices declared (E207); an axis that the placement does not have
// (E208), or has beside others and is not named (E104); fewer coordinates left than are to share a microbatch (E319);
// two directives for placements of the same chunks (E301).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/suggest.h"
#include "directives/device_choice.h"
#include "directives/directives.h"
#include "directives/lost_devices.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// Along which axis of the group coordinates drop out.
Result<size_t> axis_of(const TrainingDag& dag, const DeviceGroup& group, const Lose& lose, DirectiveId by) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : group.axes) names.push_back(axis.name);
  if (lose.along.empty() && names.size() == 1) return size_t{0};
  if (lose.along.empty())
    return error(ErrorCode::E104, dag.where(by),
                 fmt::format("lose: the devices {} have the axes {}; along which do coordinates drop out?",
                             print_devices(group.devices), fmt::join(names, ", ")))
        .help(fmt::format("name the one whose devices hold equal parameters: along={}", names[0]));
  const auto found = std::ranges::find(names, lose.along);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  const bool listed = names == std::vector<std::string>{""};
  return error(ErrorCode::E208, dag.where(by, {"along"}),
               fmt::format("lose: the devices {} have no axis \"{}\"", print_devices(group.devices), lose.along))
      .help(listed ? "a placement by list has no axes; leave along out" : did_you_mean(lose.along, names));
}

/// A placement, and the coordinates of an axis that are left of it.
struct Survivors {
  GroupId group;
  size_t axis = 0;
  std::vector<int> left;
};

/// Placements of the same chunks go on in groups of one size.
Result<std::vector<DeviceGroup>> what_is_left(const TrainingDag& dag, const Survivors& of, int most, const Lose& lose,
                                              DirectiveId by) {
  const DeviceGroup& group = dag.groups[of.group];
  const auto& [id, axis, left] = of;
  const int count = lose.replicas.value_or(most);
  if (!left.empty() && count <= static_cast<int>(left.size())) return groups_left(group, axis, left, count);
  const std::string along = group.axes[axis].name.empty() ? "" : fmt::format(" along \"{}\"", group.axes[axis].name);
  return error(ErrorCode::E319, dag.where(by, {"replicas", "devices"}),
               left.empty()
                   ? fmt::format("lose: nothing is left of the placement on {}{}", print_devices(group.devices), along)
                   : fmt::format("lose: {} are to share a microbatch, and {} of the placement on {}{} are left", count,
                                 left.size(), print_devices(group.devices), along))
      .help(left.empty() ? "place what runs there on other devices: a simulation of the failure finds such schedules"
                         : fmt::format("write replicas={} or less, or leave it out", left.size()));
}

/// By group: the parts of the batch that it works on, numbered.
std::map<GroupId, std::map<int, size_t>> turns_of(const TrainingDag& dag) {
  std::map<GroupId, std::map<int, size_t>> turns;
  for (const Node& node : dag.nodes)
    if (node.group.valid()) turns[node.group].emplace(node.tags.slice, 0);
  for (auto& [group, slices] : turns) {
    size_t next = 0;
    for (auto& [slice, turn] : slices) turn = next++;
  }
  return turns;
}

Checked check(const TrainingDag& dag, const Lose& lose, DirectiveId by) {
  if (dag.devices == 0)
    return error(ErrorCode::E207, dag.where(by), "lose: no devices are declared").help("add devices(n) or mesh(…)");
  PIPER_CHECK(check_devices(dag, {{lose.devices}, {}, {}, dag.where(by, {"devices"})}, by));
  for (size_t i = 0; i < lose.devices.size(); ++i)
    if (std::ranges::binary_search(dag.lost, lose.devices[i]))
      return error(ErrorCode::E205, dag.where_number(by, "devices", i),
                   fmt::format("lose: device {} is lost already", lose.devices[i]))
          .help("name it once");
  return Ok{};
}

/// No other directive has said what is left of it.
Checked check_whole(const TrainingDag& dag, GroupId group, DirectiveId by) {
  for (const Remainder& other : dag.remainders)
    if (other.group == group)
      return error(ErrorCode::E301, dag.where(by, {"devices"}),
                   fmt::format("lose: the placement on {} has lost devices already",
                               print_devices(dag.groups[other.of].devices)))
          .note(dag.where(other.by, {"devices"}), "lost here")
          .help("name all devices that it loses in one directive");
  return Ok{};
}

/// By placement that goes on: the groups that do its work.
using Left = std::map<GroupId, std::vector<DeviceGroup>>;

Result<Left> find_left(const TrainingDag& dag, const DeviceList& lost, const Lose& lose, DirectiveId by) {
  DeviceList mine = lose.devices;
  std::ranges::sort(mine);
  Left left;
  for (const std::vector<GroupId>& together : placements_together(dag)) {
    const auto is_hit = [&](GroupId group) { return has_lost(dag.groups[dag.placed_as(group)], mine); };
    if (std::ranges::none_of(together, is_hit)) continue;
    std::vector<Survivors> placements;
    int most = most_parts;
    for (const GroupId group : together) {
      PIPER_CHECK(check_whole(dag, group, by));
      PIPER_TRY(const size_t axis, axis_of(dag, dag.groups[group], lose, by));
      placements.push_back({group, axis, coordinates_left(dag.groups[group], axis, lost)});
      most = std::min(most, static_cast<int>(placements.back().left.size()));
    }
    for (const Survivors& placement : placements) {
      PIPER_TRY(left[placement.group], what_is_left(dag, placement, most, lose, by));
    }
  }
  return left;
}

}  // namespace

Result<TrainingDag> apply(TrainingDag dag, const Lose& lose, DirectiveId by) {
  PIPER_CHECK(check(dag, lose, by));
  DeviceList lost = dag.lost;
  lost.insert(lost.end(), lose.devices.begin(), lose.devices.end());
  std::ranges::sort(lost);
  PIPER_TRY(Left left, find_left(dag, lost, lose, by));

  const auto turns = turns_of(dag);
  dag.lost = std::move(lost);
  std::map<GroupId, std::vector<GroupId>> instead;
  for (auto& [group, parts] : left)
    for (DeviceGroup& part : parts) {
      instead[group].push_back(dag.groups.intern(std::move(part)));
      dag.remainders.push_back({instead[group].back(), group, by});
    }
  for (Node& node : dag.nodes)
    if (const auto found = instead.find(node.group); found != instead.end())
      node.group = found->second[turns.at(node.group).at(node.tags.slice) % found->second.size()];
  return dag;
}

}  // namespace piper
