#include "sim/places.h"

#include <map>
#include <numeric>

namespace piper::sim {
namespace {

Place collective_place(const PlanPartition& partition, const Cluster& cluster, size_t devices) {
  Place place;
  place.of_member.assign(devices, -1);
  const auto size = static_cast<size_t>(partition.part_size);
  for (size_t first = 0; first + size <= partition.members.size(); first += size) {
    Circle circle;
    const auto begin = partition.members.begin() + static_cast<long>(first);
    circle.members.assign(begin, begin + partition.part_size);
    circle.spread = spread_of(cluster, circle.members);
    for (const int device : circle.members)
      place.of_member[static_cast<size_t>(device)] = static_cast<int>(place.circles.size());
    place.circles.push_back(std::move(circle));
  }
  return place;
}

/// Both groups cut the same samples evenly, so circles end where cuts of both coincide. Devices that share samples are
/// in circles of their own, with those of the other group that stand at the same place.
Place transfer_place(const DeviceList& from, const DeviceList& to, int64_t sharers, const Cluster& cluster,
                     size_t devices) {
  Place place;
  place.transfer = true;
  place.of_member.assign(devices, -1);
  place.of_receiver.assign(devices, -1);
  const auto senders = static_cast<int64_t>(from.size()) / sharers,
             receivers = static_cast<int64_t>(to.size()) / sharers;
  const int64_t samples = senders * receivers, span = std::lcm(senders, receivers);
  place.circles.resize(static_cast<size_t>(samples / span * sharers));
  const auto circle_of = [&](int64_t position, int64_t others) {
    return static_cast<size_t>(position / sharers * others / span * sharers + position % sharers);
  };
  for (int64_t i = 0; i < senders * sharers; ++i) {
    const size_t circle = circle_of(i, receivers);
    const int device = from[static_cast<size_t>(i)];
    place.circles[circle].members.push_back(device);
    place.of_member[static_cast<size_t>(device)] = static_cast<int>(circle);
    for (const TransferPiece& piece :
         transfer_pieces(static_cast<int>(i), from, to, samples, static_cast<int>(sharers))) {
      const int level = piece.peer == device ? -1 : meeting_level(cluster, device, piece.peer);
      place.circles[circle].pieces.push_back(
          {device, piece.peer, level, static_cast<double>(piece.samples) / static_cast<double>(senders)});
    }
  }
  for (int64_t i = 0; i < receivers * sharers; ++i) {
    const size_t circle = circle_of(i, senders);
    place.circles[circle].receivers.push_back(to[static_cast<size_t>(i)]);
    place.of_receiver[static_cast<size_t>(to[static_cast<size_t>(i)])] = static_cast<int>(circle);
  }
  return place;
}

}  // namespace

Places find_places(const Plan& plan, const Cluster& cluster) {
  Places places;
  const auto devices = static_cast<size_t>(device_count(plan));
  std::map<std::pair<int, int>, int> index;  // a partition is a pair with -1
  for (const Communication& c : plan.communications) {
    const auto key = c.transfer ? std::pair(c.from, c.to) : std::pair(-1, c.over);
    const auto [found, fresh] = index.try_emplace(key, static_cast<int>(places.all.size()));
    if (fresh)
      places.all.push_back(c.transfer
                               ? transfer_place(plan.groups[static_cast<size_t>(c.from)],
                                                plan.groups[static_cast<size_t>(c.to)], plan.sharers, cluster, devices)
                               : collective_place(plan.partitions[static_cast<size_t>(c.over)], cluster, devices));
    places.of_communication.push_back(found->second);
  }
  return places;
}

}  // namespace piper::sim
