#include "train/loop/protect/copy_holders.h"

#include <algorithm>
#include <numeric>

namespace piper {

std::vector<int> lost_together(const std::vector<std::string>& hosts) {
  std::vector<int> out(hosts.size());
  std::iota(out.begin(), out.end(), 0);
  if (std::ranges::adjacent_find(hosts, std::not_equal_to()) == hosts.end()) return out;
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    out[rank] = static_cast<int>(std::ranges::find(hosts, hosts[rank]) - hosts.begin());
  return out;
}

int distance_of_copies(const std::vector<int>& lost_together, int copies) {
  const auto ranks = static_cast<int>(lost_together.size());
  int best = 0, most = -1;
  for (int distance = 1; distance < ranks; ++distance) {
    if (ranks / std::gcd(ranks, distance) <= copies) continue;  // it would come around
    int apart = 0;
    for (int copy = 1; copy <= copies; ++copy)
      for (int rank = 0; rank < ranks; ++rank) {
        const auto holder = static_cast<size_t>((rank + copy * distance) % ranks);
        apart += lost_together[holder] != lost_together[static_cast<size_t>(rank)];
      }
    if (apart <= most) continue;
    best = distance;
    most = apart;
  }
  return best;
}

}  // namespace piper
