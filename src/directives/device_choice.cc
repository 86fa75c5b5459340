#include "directives/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/suggest.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

std::vector<std::string> axis_names(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : axes)
    if (!axis.name.empty()) names.push_back(axis.name);
  return names;
}

}  // namespace

Diagnostic declared_twice(const TrainingDag& dag, DirectiveId by) {
  Diagnostic problem =
      error(ErrorCode::E207, dag.where(by), fmt::format("the step has {} devices already", dag.devices))
          .help("keep one of devices(n) and mesh(…)");
  for (size_t d = 0; d < dag.origins.size(); ++d) {
    const std::string_view verb = dag.origins[d].verb;
    if ((verb != "devices" && verb != "mesh") || DirectiveId(d) == by) continue;
    problem.notes.push_back({dag.origins[d].where, "declared here"});
    break;
  }
  return problem;
}

Checked check_devices(const TrainingDag& dag, const DeviceChoice& choice, DirectiveId by) {
  size_t number = 0;
  for (const DeviceList& list : choice.lists) {
    std::map<int, size_t> seen;
    for (const int device : list) {
      const size_t here = number++;
      if (device >= dag.devices)
        return error(ErrorCode::E205, dag.where_number(by, "devices", here),
                     fmt::format("device {} does not exist; there are devices 0 to {}", device, dag.devices - 1))
            .help("raise devices(n), or correct the list");
      if (const auto [first, fresh] = seen.emplace(device, here); !fresh)
        return error(ErrorCode::E205, dag.where_number(by, "devices", here),
                     fmt::format("device {} stands twice in one list", device))
            .note(dag.where_number(by, "devices", first->second), "first here")
            .help("keep it once");
    }
  }
  return Ok{};
}

Result<DeviceGroup> mesh_slab(const TrainingDag& dag, const Filter& coordinates) {
  if (dag.mesh.empty())
    return error(ErrorCode::E207, coordinates.where, "there is no mesh to take coordinates of")
        .help("declare one: mesh(pp=2, dp=4)");
  for (const TagCondition& condition : coordinates.conditions)
    if (const auto names = axis_names(dag.mesh); std::find(names.begin(), names.end(), condition.tag) == names.end())
      return error(ErrorCode::E208, condition.where, fmt::format("the mesh has no axis \"{}\"", condition.tag))
          .help(did_you_mean(condition.tag, names));
  DeviceGroup group;
  group.devices = {0};
  for (const MeshAxis& axis : dag.mesh) {
    const TagCondition* condition = coordinates.find(axis.name);
    std::vector<int> kept;
    for (int i = 0; i < axis.size; ++i)
      if (!condition || condition->matches(i)) kept.push_back(i);
    if (kept.empty())
      return error(ErrorCode::E205, condition->where,
                   fmt::format("axis \"{}\" counts from 0 to {}", axis.name, axis.size - 1))
          .help(fmt::format("correct the coordinate, or make the axis longer: mesh({}=…)", axis.name));
    DeviceList next;
    for (const int base : group.devices)
      for (const int i : kept) next.push_back(base * axis.size + i);
    group.devices = std::move(next);
    if (!condition || kept.size() > 1) group.axes.push_back({axis.name, static_cast<int>(kept.size())});
  }
  if (group.axes.empty()) group.axes.push_back({"", 1});
  return group;
}

namespace {

Diagnostic no_such_axis(const DeviceGroup& group, const std::string& axis, SourceRange where, std::string_view verb) {
  const std::vector<std::string> names = axis_names(group.axes);
  return error(ErrorCode::E208, std::move(where),
               fmt::format("{}: the devices {} have no axis \"{}\"", verb, print_devices(group.devices), axis))
      .help(names.empty() ? "a placement by list has no axes; give devices=[…] here too" : did_you_mean(axis, names));
}

/// What lists that make up a placement are on a group that is left of it.
Result<PartitionId> left_of(TrainingDag& dag, GroupId id, const DeviceList& whole, int parts,
                            const DeviceChoice& choice, std::string_view verb) {
  const DeviceList& left = dag.groups[id].devices;
  Partition partition{id, 0, {}};
  const auto part_size = static_cast<int>(whole.size()) / parts;
  for (int p = 0; p < parts; ++p) {
    DeviceList part;
    for (int i = p * part_size; i < (p + 1) * part_size; ++i)
      if (std::ranges::find(left, whole[static_cast<size_t>(i)]) != left.end())
        part.push_back(whole[static_cast<size_t>(i)]);
    if (part.empty()) continue;
    if (partition.part_size > 0 && partition.part_size != static_cast<int>(part.size()))
      return error(
                 ErrorCode::E212, choice.where,
                 fmt::format("{}: the lists leave parts of unequal size of the devices {}", verb, print_devices(left)))
          .help("lose as many devices of every list");
    partition.part_size = static_cast<int>(part.size());
    partition.members.insert(partition.members.end(), part.begin(), part.end());
  }
  return dag.groups.intern(std::move(partition));
}

/// Lists that together make up the group, as it was placed.
Result<PartitionId> by_lists(TrainingDag& dag, GroupId now, const DeviceChoice& choice, DirectiveId by,
                             std::string_view verb) {
  PIPER_CHECK(check_devices(dag, choice, by));
  const GroupId id = dag.placed_as(now);
  const DeviceGroup& group = dag.groups[id];
  Partition partition{id, 1, {}};
  const std::set<int> members(group.devices.begin(), group.devices.end());
  for (size_t l = 0; l < choice.lists.size(); ++l) {
    const DeviceList& list = choice.lists[l];
    const bool inside = std::all_of(list.begin(), list.end(), [&](int d) { return members.contains(d); });
    const bool outside = std::none_of(list.begin(), list.end(), [&](int d) { return members.contains(d); });
    if (outside) continue;
    if (!inside || (!partition.members.empty() && static_cast<int>(list.size()) != partition.part_size))
      return error(ErrorCode::E212, choice.lists.size() > 1 ? dag.where_item(by, "devices", l) : choice.where,
                   fmt::format("{}: {} and the placement on {} do not fit", verb, print_devices(list),
                               print_devices(group.devices)))
          .help("lists must be of equal size and stay inside the devices given by place");
    partition.part_size = static_cast<int>(list.size());
    partition.members.insert(partition.members.end(), list.begin(), list.end());
  }
  if (std::set<int>(partition.members.begin(), partition.members.end()) != members ||
      partition.members.size() != group.devices.size())
    return error(ErrorCode::E212, choice.where,
                 fmt::format("{}: the lists do not cover the placement on {}", verb, print_devices(group.devices)))
        .help("every device given by place must stand in exactly one list");
  if (now != id) return left_of(dag, now, partition.members, partition.parts(), choice, verb);
  return dag.groups.intern(std::move(partition));
}

}  // namespace

Result<PartitionId> partition_of(TrainingDag& dag, GroupId id, const DeviceChoice& choice, DirectiveId by) {
  const std::string_view named = dag.origins[by.index()].verb;
  if (choice.mesh)
    return error(ErrorCode::E105, choice.where,
                 fmt::format("{}: say along which axis, or give lists of devices", named))
        .help("write along=dp or devices=[0, 1] instead of mesh={…}");
  if (choice.along.empty()) return by_lists(dag, id, choice, by, named);
  const std::vector<std::string> names = axis_names(dag.groups[id].axes);
  for (size_t a = 0; a < choice.along.size(); ++a)
    if (std::find(names.begin(), names.end(), choice.along[a]) == names.end())
      return no_such_axis(dag.groups[id], choice.along[a],
                          choice.along.size() > 1 ? dag.where_item(by, "along", a) : choice.where, named);
  return dag.groups.along(id, choice.along);
}

}  // namespace piper
