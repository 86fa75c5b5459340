#include "recover/placing_anew.h"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace piper {
namespace {

/// The coordinate of a device along an axis of the mesh; nothing if there is no such axis.
std::optional<int> coordinate_of(const std::vector<MeshAxis>& mesh, const std::string& axis, int device) {
  for (auto a = mesh.rbegin(); a != mesh.rend(); ++a) {
    if (a->name == axis) return device % a->size;
    device /= a->size;
  }
  return std::nullopt;
}

class Mover {
 public:
  Mover(const Loss& loss, const std::vector<GroupId>& dead) : loss_(loss), dead_(dead) {}

  /// Fewer stages, cut evenly: as many on each coordinate as before.
  std::optional<Schedule> fewer_stages() const {
    return along_axes([&](Place& place, int size, const std::vector<int>& left) {
      const int each = std::max(1, place.stages / size), now = static_cast<int>(left.size());
      const StageShape shape = place.shape == StageShape::V ? StageShape::V : StageShape::Loop;
      place.ranks.clear();
      for (int s = 0; s < each * now; ++s)
        place.ranks.push_back(left[static_cast<size_t>(stage_coordinate(shape, s, now))]);
      place.stages = each * now;
      place.at.clear();
    });
  }

  /// The same stages; those of a dead coordinate go to the nearest that is left.
  std::optional<Schedule> to_neighbours() const {
    return along_axes([&](Place& place, int size, const std::vector<int>& left) {
      std::vector<int> ranks;
      for (int s = 0; s < place.stages; ++s) {
        const int was =
            place.ranks.empty() ? stage_coordinate(place.shape, s, size) : place.ranks[static_cast<size_t>(s)];
        ranks.push_back(*std::ranges::min_element(left, {}, [&](int c) { return std::abs(c - was); }));
      }
      place.ranks = ranks;
    });
  }

  /// Everything that stands on the devices of a dead placement one by one goes to those of another placement.
  std::vector<Schedule> to_others() const {
    std::vector<DeviceChoice> dead, others;
    for (const Directive& directive : loss_.schedule.directives) {
      const auto* place = std::get_if<Place>(&directive.body);
      if (!place || place->stages > 0) continue;
      auto& kind = is_dead(*place) ? dead : others;
      if (std::ranges::find_if(kind, [&](const DeviceChoice& c) { return same(c, place->devices); }) == kind.end())
        kind.push_back(place->devices);
    }
    std::vector<Schedule> out;
    if (dead.empty()) return out;
    for (const DeviceChoice& other : others) out.push_back(moved(dead, other));
    return out;
  }

 private:
  static bool same(const DeviceChoice& a, const DeviceChoice& b) {
    const auto conditions = [](const DeviceChoice& c) {
      std::vector<TagCondition> all = c.mesh ? c.mesh->conditions : std::vector<TagCondition>{};
      for (TagCondition& condition : all) condition.where = {};
      return all;
    };
    return a.lists == b.lists && a.mesh.has_value() == b.mesh.has_value() && conditions(a) == conditions(b);
  }

  bool is_dead(int device) const {
    return std::ranges::any_of(dead_, [&](GroupId group) {
      const DeviceList& devices = loss_.placed.groups[group].devices;
      return std::ranges::find(devices, device) != devices.end();
    });
  }
  bool is_dead(const Place& place) const {
    if (!place.devices.lists.empty()) return is_dead(place.devices.lists[0][0]);
    const std::vector<MeshAxis>& mesh = loss_.placed.mesh;
    for (int device = 0; place.devices.mesh && device < loss_.placed.devices; ++device) {
      const auto matches = [&](const TagCondition& c) { return c.matches(coordinate_of(mesh, c.tag, device)); };
      if (std::ranges::all_of(place.devices.mesh->conditions, matches) && is_dead(device)) return true;
    }
    return false;
  }

  template <class Change>
  std::optional<Schedule> along_axes(Change change) const {
    Schedule out = loss_.schedule;
    bool changed = false;
    for (Directive& directive : out.directives) {
      auto* place = std::get_if<Place>(&directive.body);
      if (!place || place->stages == 0) continue;
      const std::string& axis = place->devices.along[0];
      std::set<int> gone;
      for (const GroupId group : dead_)
        gone.insert(*coordinate_of(loss_.placed.mesh, axis, loss_.placed.groups[group].devices[0]));
      const int size = std::ranges::find(loss_.placed.mesh, axis, &MeshAxis::name)->size;
      std::vector<int> left;
      for (int c = 0; c < size; ++c)
        if (!gone.contains(c)) left.push_back(c);
      if (left.empty()) return std::nullopt;
      change(*place, size, left);
      place->shape = StageShape::Loop;  // ranks say where
      directive.arguments = {};
      changed = true;
    }
    return changed ? std::optional(std::move(out)) : std::nullopt;
  }

  Schedule moved(const std::vector<DeviceChoice>& dead, const DeviceChoice& other) const {
    Schedule out = loss_.schedule;
    const auto is_gone = [&](const DeviceList& list) { return is_dead(list[0]); };
    for (Directive& directive : out.directives) {
      if (auto* place = std::get_if<Place>(&directive.body))
        if (std::ranges::any_of(dead, [&](const DeviceChoice& c) { return same(c, place->devices); }))
          place->devices = other;
      const auto move_lists = [&](auto& body) {
        std::vector<DeviceList>& lists = body.devices.lists;
        const bool had = std::ranges::any_of(lists, is_gone);
        std::erase_if(lists, is_gone);
        if (had && !other.lists.empty() && std::ranges::find(lists, other.lists[0]) == lists.end())
          lists.push_back(other.lists[0]);
      };
      if (auto* replicate = std::get_if<Replicate>(&directive.body)) move_lists(*replicate);
      if (auto* shard = std::get_if<Shard>(&directive.body)) move_lists(*shard);
      directive.arguments = {};
    }
    return out;
  }

  const Loss& loss_;
  const std::vector<GroupId>& dead_;
};

}  // namespace

std::vector<Schedule> placed_anew(const Loss& loss, const std::vector<GroupId>& dead) {
  const Mover mover(loss, dead);
  std::vector<Schedule> out = mover.to_others();
  for (auto& schedule : {mover.fewer_stages(), mover.to_neighbours()})
    if (schedule) out.push_back(*schedule);
  return out;
}

}  // namespace piper
