#include "sim/symmetry.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "base/hash.h"

namespace piper::sim {
namespace {

/// Numbers things by their signatures, in order of first appearance. Signature 0: not part of the plan.
template <class Kind>
Kinds<Kind> number(const std::vector<uint64_t>& signatures) {
  Kinds<Kind> kinds;
  std::unordered_map<uint64_t, Kind> index;
  for (size_t i = 0; i < signatures.size(); ++i) {
    if (signatures[i] == 0) {
      kinds.of.emplace_back();
      continue;
    }
    const auto [found, fresh] = index.try_emplace(signatures[i], kinds.first.size());
    if (fresh) kinds.first.push_back(static_cast<int>(i));
    kinds.of.push_back(found->second);
  }
  return kinds;
}

uint64_t signature(uint64_t what, std::vector<uint64_t>& parts) {
  std::sort(parts.begin(), parts.end());
  StableHash hash;
  hash.add(what);
  for (const uint64_t part : parts) hash.add(part);
  return hash.value() | 1;
}

uint64_t pair_of(uint64_t a, uint64_t b) {
  StableHash hash;
  hash.add(a);
  hash.add(b);
  return hash.value() | 1;
}

uint64_t size_of(const Piece& piece) {
  return pair_of(static_cast<uint64_t>(piece.level), std::bit_cast<uint64_t>(piece.share));
}

uint64_t hash_of(const Spread& spread) {
  StableHash hash;
  hash.add(static_cast<uint64_t>(spread.members));
  hash.add(static_cast<uint64_t>(spread.top));
  for (const LevelSpread& level : spread.levels)
    for (const auto word : {level.units, level.largest, level.children, level.ports, static_cast<int>(level.crossing)})
      hash.add(static_cast<uint64_t>(word));
  return hash.value();
}

/// Signatures grow round by round until no kind falls apart any more.
class Refinement {
 public:
  Refinement(const Plan& plan, const Cluster& cluster, const Groupings& groupings)
      : cluster_(cluster), groupings_(groupings) {
    const std::vector<TemplateId> templates = template_of_device(plan);
    for (size_t d = 0; d < templates.size(); ++d)
      device_.push_back(!templates[d].valid() ? 0
                                              : pair_of(templates[d].index(),
                                                        static_cast<uint64_t>(&kind_of(cluster, static_cast<int>(d)) -
                                                                              &cluster.kinds[0])));
    for (size_t level = 0; level < cluster.levels.size(); ++level) {
      behind_.push_back(devices_behind(plan, cluster, static_cast<int>(level)));
      port_.emplace_back(behind_.back().size(), 1);
    }
    for (const Grouping& grouping : groupings.all) group_.emplace_back(grouping.groups.size(), 0);
  }

  Symmetry run() {
    for (size_t kinds = 0;;) {
      refine_groups();
      refine_ports();
      refine_devices();
      Symmetry symmetry = numbered();
      size_t now = symmetry.devices.count();
      for (const auto& groups : symmetry.groups) now += groups.count();
      for (const auto& ports : symmetry.ports) now += ports.count();
      if (now == kinds) return symmetry;
      kinds = now;
    }
  }

 private:
  Symmetry numbered() const {
    Symmetry symmetry;
    symmetry.devices = number<LaneId>(device_);
    for (const auto& groups : group_) symmetry.groups.push_back(number<GroupKindId>(groups));
    for (const auto& ports : port_) symmetry.ports.push_back(number<PortKindId>(ports));
    return symmetry;
  }
  uint64_t device(int d) const { return device_[static_cast<size_t>(d)]; }
  uint64_t port(size_t level, int d) const {
    return port_[level][static_cast<size_t>(port_of(cluster_, static_cast<int>(level), d))];
  }

  void refine_groups() {
    std::vector<uint64_t> parts;
    for (const GroupingId p : groupings_.all.ids()) {
      for (const ProcessGroupId c : group_[p].ids()) {
        const ProcessGroup& group = groupings_.all[p].groups[c];
        parts.clear();
        for (const auto* devices : {&group.members, &group.receivers})
          for (const int d : *devices) {
            parts.push_back(pair_of(devices == &group.members, device(d)));
            for (size_t level = 0; level < port_.size(); ++level) parts.push_back(pair_of(level, port(level, d)));
          }
        for (const Piece& piece : group.pieces)
          parts.push_back(pair_of(pair_of(device(piece.from), device(piece.to)), size_of(piece)));
        parts.push_back(hash_of(group.spread));
        group_[p][c] = signature(p.index(), parts);
      }
    }
  }

  void refine_ports() {
    std::vector<uint64_t> parts;
    std::vector<ProcessGroupId> met;
    for (size_t level = 0; level < port_.size(); ++level) {
      for (size_t q = 0; q < port_[level].size(); ++q) {
        if (behind_[level][q].empty()) {
          port_[level][q] = 0;
          continue;
        }
        parts.clear();
        for (const int d : behind_[level][q]) parts.push_back(device(d));
        for (const GroupingId p : groupings_.all.ids())
          for (const auto* of : {&groupings_.all[p].of_member, &groupings_.all[p].of_receiver}) {
            if (of->empty()) continue;
            met.clear();
            for (const int d : behind_[level][q])
              if (const ProcessGroupId c = (*of)[static_cast<size_t>(d)]; c.valid()) met.push_back(c);
            std::sort(met.begin(), met.end());
            met.erase(std::unique(met.begin(), met.end()), met.end());
            for (const ProcessGroupId c : met) parts.push_back(group_[p][c]);
          }
        port_[level][q] = signature(level, parts);
      }
    }
  }

  /// By device: what it sends to whom and gets from whom, as a sum, so that no order matters.
  std::vector<uint64_t> piece_signatures() const {
    std::vector<uint64_t> out(device_.size(), 0);
    for (const GroupingId p : groupings_.all.ids())
      for (const ProcessGroup& group : groupings_.all[p].groups)
        for (const Piece& piece : group.pieces) {
          const uint64_t what = pair_of(p.index(), size_of(piece));
          out[static_cast<size_t>(piece.from)] += pair_of(what, device(piece.to));
          out[static_cast<size_t>(piece.to)] += pair_of(device(piece.from), what);
        }
    return out;
  }

  void refine_devices() {
    const std::vector<uint64_t> pieces = piece_signatures();
    std::vector<uint64_t> parts;
    std::vector<uint64_t> next(device_.size(), 0);
    for (size_t d = 0; d < device_.size(); ++d) {
      if (device_[d] == 0) continue;
      parts.clear();
      for (size_t level = 0; level < port_.size(); ++level)
        parts.push_back(pair_of(level, port(level, static_cast<int>(d))));
      parts.push_back(pieces[d]);
      for (const GroupingId p : groupings_.all.ids()) {
        const Grouping& grouping = groupings_.all[p];
        if (grouping.of_member[d].valid()) parts.push_back(group_[p][grouping.of_member[d]]);
        if (grouping.transfer && grouping.of_receiver[d].valid())
          parts.push_back(pair_of(p.index(), group_[p][grouping.of_receiver[d]]));
      }
      next[d] = signature(device_[d], parts);
    }
    device_ = std::move(next);
  }

  const Cluster& cluster_;
  const Groupings& groupings_;
  std::vector<uint64_t> device_;
  Table<GroupingId, Table<ProcessGroupId, uint64_t>> group_;
  std::vector<std::vector<uint64_t>> port_;            // by level and port
  std::vector<std::vector<std::vector<int>>> behind_;  // by level and port
};

template <class Kind>
Kinds<Kind> each_its_own(size_t count) {
  Kinds<Kind> kinds;
  for (size_t i = 0; i < count; ++i) kinds.of.push_back(kinds.first.add(static_cast<int>(i)));
  return kinds;
}

Symmetry no_symmetry(const Plan& plan, const Cluster& cluster, const Groupings& groupings) {
  Symmetry symmetry;
  std::vector<uint64_t> devices;
  const std::vector<TemplateId> templates = template_of_device(plan);
  for (size_t d = 0; d < templates.size(); ++d) devices.push_back(templates[d].valid() ? d + 1 : 0);
  symmetry.devices = number<LaneId>(devices);
  for (const Grouping& grouping : groupings.all)
    symmetry.groups.push_back(each_its_own<GroupKindId>(grouping.groups.size()));
  for (size_t level = 0; level < cluster.levels.size(); ++level)
    symmetry.ports.push_back(each_its_own<PortKindId>(devices_behind(plan, cluster, static_cast<int>(level)).size()));
  return symmetry;
}

}  // namespace

std::vector<std::vector<int>> devices_behind(const Plan& plan, const Cluster& cluster, int level) {
  std::vector<std::vector<int>> behind;
  const std::vector<TemplateId> templates = template_of_device(plan);
  for (size_t d = 0; d < templates.size(); ++d) {
    if (!templates[d].valid()) continue;
    const auto port = static_cast<size_t>(port_of(cluster, level, static_cast<int>(d)));
    if (behind.size() <= port) behind.resize(port + 1);
    behind[port].push_back(static_cast<int>(d));
  }
  return behind;
}

Symmetry find_symmetry(const Plan& plan, const Cluster& cluster, const Groupings& groupings, Reduce reduce) {
  return reduce == Reduce::Nothing ? no_symmetry(plan, cluster, groupings) : Refinement(plan, cluster, groupings).run();
}

}  // namespace piper::sim
