#include "recover/sharing.h"

#include <algorithm>
#include <set>

#include "directives/lost_devices.h"

namespace piper {
namespace {

/// Axes along which a replicate directive has equal parameters; "" for lists.
std::set<std::string> replicated_axes(const Schedule& schedule) {
  std::set<std::string> out;
  for (const Directive& directive : schedule.directives)
    if (const auto* replicate = std::get_if<Replicate>(&directive.body)) {
      out.insert(replicate->devices.along.begin(), replicate->devices.along.end());
      if (!replicate->devices.lists.empty()) out.insert("");
    }
  return out;
}

/// Parts of the batch that a group works on.
int parts_of(const TrainingDag& dag, GroupId group) {
  std::set<int> slices;
  for (const Node& node : dag.nodes)
    if (node.group == group) slices.insert(node.tags.slice);
  return static_cast<int>(slices.size());
}

/// All ways to share along one axis that divide the samples.
void add_shares(const Loss& loss, Hit& hit, size_t axis, bool alone) {
  const TrainingDag& dag = loss.placed;
  const DeviceGroup& first = dag.groups[hit.placements[0]];
  const int size = first.axes[axis].size, parts = parts_of(dag, hit.placements[0]);
  int left = size;
  for (const GroupId group : hit.placements) {
    const DeviceGroup& placed = dag.groups[group];
    left = std::min(left, static_cast<int>(coordinates_left(placed, axis, loss.devices).size()));
  }
  const int64_t samples = dag.model->step.batch / dag.slices();
  for (int replicas = left; replicas >= 1; --replicas) {
    const int groups = left / replicas;
    const auto add = [&](int finer) {
      const int turns = (parts * finer + groups - 1) / groups;
      Share share{{hit.lost, first.axes[axis].name, replicas}, finer, 0};
      if (replicas == left) share.lose.replicas.reset();
      share.load = static_cast<double>(turns) * size / (static_cast<double>(replicas) * finer * parts);
      hit.shares.push_back(share);
    };
    if (samples % replicas == 0) add(1);
    if (alone && size % replicas == 0 && size > replicas && samples % size == 0) add(size / replicas);
  }
}

}  // namespace

std::vector<Hit> find_hits(const Loss& loss) {
  const TrainingDag& dag = loss.placed;
  const std::set<std::string> axes = replicated_axes(loss.schedule);
  const auto sets = placements_together(dag);
  const bool alone =
      sets.size() == 1 && sets[0].size() == 1 && dag.dims.size() == 1;  // no others share its microbatches
  std::vector<Hit> out;
  for (const std::vector<GroupId>& together : sets) {
    Hit hit{together, {}, {}};
    for (const GroupId group : together)
      for (const int device : dag.groups[group].devices)
        if (std::ranges::binary_search(loss.devices, device)) hit.lost.push_back(device);
    if (hit.lost.empty()) continue;
    std::ranges::sort(hit.lost);
    hit.lost.erase(std::ranges::unique(hit.lost).begin(), hit.lost.end());
    const std::vector<MeshAxis>& of = dag.groups[together[0]].axes;
    for (size_t axis = 0; axis < of.size(); ++axis)
      if (of[axis].size > 1 && axes.contains(of[axis].name)) add_shares(loss, hit, axis, alone);
    std::ranges::stable_sort(hit.shares, {}, &Share::load);
    out.push_back(std::move(hit));
  }
  return out;
}

Schedule with_shares(const Loss& loss, Schedule schedule, const std::vector<Share>& shares) {
  std::vector<Lose> directives;
  DeviceList rest = loss.devices;
  for (const Share& share : shares) {
    std::erase_if(rest, [&](int device) { return std::ranges::binary_search(share.lose.devices, device); });
    const auto same = std::ranges::find_if(directives, [&](const Lose& lose) {
      return lose.along == share.lose.along && lose.replicas == share.lose.replicas;
    });
    if (same == directives.end()) {
      directives.push_back(share.lose);
    } else {
      same->devices.insert(same->devices.end(), share.lose.devices.begin(), share.lose.devices.end());
      std::ranges::sort(same->devices);
    }
    for (Directive& directive : schedule.directives)
      if (auto* split = std::get_if<Split>(&directive.body)) split->parts *= share.finer;
  }
  if (!rest.empty()) directives.push_back({rest, {}, {}});
  auto after = schedule.directives.begin();
  for (auto d = schedule.directives.begin(); d != schedule.directives.end(); ++d)
    if (std::holds_alternative<Place>(d->body)) after = d + 1;
  for (const Lose& lose : directives) after = schedule.directives.insert(after, {lose, {}, {}}) + 1;
  return schedule;
}

}  // namespace piper
