#include "base/device_block.h"

#include <algorithm>

namespace piper {

DeviceBlock devices_of(int rank, int ranks, int devices) {
  const int each = devices / ranks, more = devices % ranks;
  return {rank * each + std::min(rank, more), each + (rank < more ? 1 : 0)};
}

int rank_of(int device, int ranks, int devices) {
  const int each = devices / ranks, more = devices % ranks;
  const int in_larger = more * (each + 1);
  return device < in_larger ? device / (each + 1) : more + (device - in_larger) / each;
}

}  // namespace piper
