// Which devices of a job each of its processes has.
#pragma once

namespace piper {

/// Blocks as even as possible, the larger ones first.
struct DeviceBlock {
  int first = 0, count = 0;
  bool has(int device) const { return device >= first && device < first + count; }
};
DeviceBlock devices_of(int rank, int ranks, int devices);
int rank_of(int device, int ranks, int devices);

}  // namespace piper
