// libFuzzer target: cluster files are read, and what they accept answers for its devices.
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/invariant.h"
#include "cost/traffic.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace piper;
  const auto cluster = parse_cluster(make_source("fuzz", std::string(reinterpret_cast<const char*>(data), size)));
  if (!cluster) return 0;
  const int devices = std::min(device_limit(*cluster), 64);
  if (!check_devices(*cluster, devices, {})) return 0;
  std::vector<int> members;
  for (int d = 0; d < devices; d += 3) members.push_back(d);
  const Spread spread = spread_of(*cluster, members);
  const double seconds = alone_seconds(collective_traffic(*cluster, CollectiveKind::AllReduce, spread, 1'000'000));
  invariant(seconds >= 0 && seconds < 1e12, "a collective takes a finite time");
  return 0;
}
