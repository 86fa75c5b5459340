// Damaged cluster files and cost tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cost/cost_table.h"
#include "cost/traffic.h"
#include "fuzz/trial.h"

namespace piper::fuzz {
namespace {

TEST(Mutations, OfClusters) {
  const auto run = [](const Seed& seed, const std::string& text) {
    const auto cluster = parse_cluster(make_source(seed.name, text));
    if (!cluster) return Outcome::Refused;
    const int devices = std::min(device_limit(*cluster), 64);
    if (!check_devices(*cluster, devices, {})) return Outcome::Parsed;
    std::vector<int> members;
    for (int d = 0; d < devices; d += 3) members.push_back(d);
    const Spread spread = spread_of(*cluster, members);
    for (const auto kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::AllToAll}) {
      const double seconds = alone_seconds(collective_traffic(*cluster, kind, spread, 1'000'000));
      EXPECT_TRUE(std::isfinite(seconds) && seconds >= 0) << text;
    }
    return Outcome::Compiled;
  };
  try_mutations("cluster", scaled(5'000), run);
}

TEST(Mutations, OfCostTables) {
  const auto run = [](const Seed& seed, const std::string& text) {
    const auto table = parse_cost_table(make_source(seed.name, text));
    if (!table) return Outcome::Refused;
    const auto again = parse_cost_table(make_source(seed.name, print(*table)));
    EXPECT_TRUE(again && *again == *table) << text;
    return Outcome::Parsed;
  };
  try_mutations("costs", scaled(5'000), run);
}

}  // namespace
}  // namespace piper::fuzz
