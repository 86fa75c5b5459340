// What communications put on the links: the published formulas on one level, and hand-computed cases on several.
#include "cost/traffic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace piper {
namespace {

std::vector<int> first(int n) {
  std::vector<int> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

LinkLevel level(int joins, int ports, double bandwidth, double latency) {
  LinkLevel out;
  out.joins = joins;
  out.ports = ports;
  out.bandwidth = bandwidth;
  out.latency = latency;
  return out;
}

/// One level that joins all, without losses.
Cluster flat(double bandwidth, double latency) {
  Cluster cluster;
  cluster.levels[0].bandwidth = bandwidth;
  cluster.levels[0].latency = latency;
  return cluster;
}

/// Nodes of 8 with 100 GB/s inside and so many ports of 10 GB/s out of a node.
Cluster nodes_of_8(int ports) {
  Cluster cluster;
  cluster.levels.resize(2);
  cluster.levels[0] = level(8, 1, 100e9, 1e-6);
  cluster.levels[1] = level(0, ports, 10e9, 5e-6);
  return cluster;
}

/// Pods of 4 such nodes with 4 ports of 20 GB/s for each pod.
Cluster pods() {
  Cluster cluster = nodes_of_8(8);
  cluster.levels[1].joins = 32;
  cluster.levels.push_back(level(0, 4, 20e9, 9e-6));
  return cluster;
}

/// a: seconds per message, B: bytes per second, S: bytes, n: members.
using Formula = double (*)(double a, double B, double S, double n);
struct Published {
  CollectiveKind kind;
  Algorithm algorithm;
  Formula seconds;
};
const Published published[] = {
    {CollectiveKind::AllReduce, Algorithm::Ring,
     [](double a, double B, double S, double n) { return 2 * (n - 1) * a + 2 * (n - 1) / n * S / B; }},
    {CollectiveKind::AllReduce, Algorithm::Tree,
     [](double a, double B, double S, double n) { return 2 * std::log2(n) * a + 2 * S / B; }},
    {CollectiveKind::AllReduce, Algorithm::InSwitch,
     [](double a, double B, double S, double) { return 2 * a + S / B; }},
    {CollectiveKind::ReduceScatter, Algorithm::Ring,
     [](double a, double B, double S, double n) { return (n - 1) * a + (n - 1) / n * S / B; }},
    {CollectiveKind::AllGather, Algorithm::Ring,
     [](double a, double B, double S, double n) { return (n - 1) * a + (n - 1) / n * S / B; }},
    {CollectiveKind::AllToAll, Algorithm::Direct,
     [](double a, double B, double S, double n) { return (n - 1) * a + (n - 1) / n * S / B; }},
};

TEST(Traffic, OneLevelEqualsThePublishedFormulas) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 500; ++trial) {
    const int n = 2 + static_cast<int>(random() % 1000);
    const auto bytes = static_cast<int64_t>(random() % 10'000'000'000);
    const double latency = 1e-9 * static_cast<double>(random() % 100'000),
                 bandwidth = 1e9 + static_cast<double>(random() % 900) * 1e9;
    Cluster cluster = flat(bandwidth, latency);
    cluster.levels[0].reduces = true;
    const Spread spread = spread_of(cluster, first(n));
    for (const Published& row : published)
      EXPECT_NEAR(alone_seconds(collective_traffic(cluster, row.kind, spread, bytes, row.algorithm)) /
                      row.seconds(latency, bandwidth, static_cast<double>(bytes), n),
                  1, 1e-12)
          << name(row.kind) << " " << name(row.algorithm) << " " << n << " " << bytes;
    EXPECT_DOUBLE_EQ(alone_seconds(transfer_traffic(cluster, 0, bytes)),
                     latency + static_cast<double>(bytes) / bandwidth);
  }
}

TEST(Traffic, TheBestAlgorithmIsNeverSlowerThanAnother) {
  std::mt19937_64 random(7);
  for (const Cluster& cluster : {flat(50e9, 1e-5), nodes_of_8(8), nodes_of_8(2), pods()})
    for (int trial = 0; trial < 200; ++trial) {
      const Spread spread = spread_of(cluster, first(2 + static_cast<int>(random() % 200)));
      const int64_t bytes = int64_t{1} << (random() % 34);
      for (const auto kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::AllToAll}) {
        const double best = alone_seconds(collective_traffic(cluster, kind, spread, bytes));
        for (const Algorithm other : algorithms(cluster, kind, spread))
          EXPECT_LE(best, alone_seconds(collective_traffic(cluster, kind, spread, bytes, other)));
        EXPECT_EQ(best, alone_seconds(collective_traffic(cluster, kind, spread, bytes,
                                                         best_algorithm(cluster, kind, spread, bytes))));
      }
    }
}

TEST(Traffic, SmallArraysTakeTheTreeAndLargeOnesTheRing) {
  const Cluster cluster = flat(50e9, 1e-5);
  const Spread spread = spread_of(cluster, first(64));
  EXPECT_EQ(best_algorithm(cluster, CollectiveKind::AllReduce, spread, 1024), Algorithm::Tree);
  EXPECT_EQ(best_algorithm(cluster, CollectiveKind::AllReduce, spread, int64_t{1} << 34), Algorithm::Ring);
}

TEST(Traffic, TransfersUseThePortsBetweenTheDevices) {
  const Cluster cluster = pods();
  const Traffic inside = transfer_traffic(cluster, 0, 1'000'000), node = transfer_traffic(cluster, 1, 1'000'000),
                pod = transfer_traffic(cluster, 2, 1'000'000);
  EXPECT_EQ(inside, (Traffic{1e-6, {1e-5}, {1e6}}));
  EXPECT_EQ(node, (Traffic{5e-6, {0, 1e-4}, {0, 1e6}}));
  EXPECT_EQ(pod, (Traffic{9e-6, {0, 1e-4, 5e-5}, {0, 1e6, 1e6}}));
}

TEST(Traffic, RingsCrossTheBorderOfANodeOnce) {
  const double bytes = 16e9, passes = 2 * 15.0 / 16 * bytes;
  for (const int ports : {1, 2, 4}) {
    const Cluster cluster = nodes_of_8(ports);
    const Traffic ring = collective_traffic(cluster, CollectiveKind::AllReduce, spread_of(cluster, first(16)),
                                            16'000'000'000, Algorithm::Ring);
    EXPECT_NEAR(ring.seconds[0], passes / 100e9, 1e-9) << ports;
    EXPECT_NEAR(ring.seconds[1], passes / ports / 10e9, 1e-9) << ports;
    EXPECT_NEAR(ring.latency, 2 * 15.0 / 16 * (14 * 1e-6 + 2 * 5e-6), 1e-12);
  }
  // eight rings: every member is once where a ring leaves
  const Cluster cluster = nodes_of_8(8);
  const Traffic ring = collective_traffic(cluster, CollectiveKind::AllReduce, spread_of(cluster, first(16)),
                                          16'000'000'000, Algorithm::Ring);
  EXPECT_NEAR(ring.seconds[0], passes * 7 / 8 / 100e9, 1e-9);
}

TEST(Traffic, MembersAloneInTheirNodesUseOnlyTheirOwnPort) {
  const Cluster cluster = nodes_of_8(8);
  const std::vector<int> members = {3, 11, 19, 27};
  const Spread spread = spread_of(cluster, members);
  const Traffic ring = collective_traffic(cluster, CollectiveKind::AllGather, spread, 4'000'000'000, Algorithm::Ring);
  EXPECT_EQ(ring.seconds[0], 0);
  EXPECT_DOUBLE_EQ(ring.seconds[1], 3e9 / 10e9);
  EXPECT_DOUBLE_EQ(ring.latency, 3 * 5e-6);
}

TEST(Traffic, HierarchicalCrossesAsOftenAsThereAreNodes) {
  const Cluster cluster = nodes_of_8(8);
  const Traffic two = collective_traffic(cluster, CollectiveKind::AllReduce, spread_of(cluster, first(16)),
                                         16'000'000'000, Algorithm::Hierarchical);
  EXPECT_NEAR(two.seconds[0], 2 * 7.0 / 8 * 16e9 / 100e9, 1e-9);
  EXPECT_NEAR(two.seconds[1], 16e9 / 8 / 10e9, 1e-9);  // 2 (c - 1) / c = 1
  EXPECT_NEAR(two.latency, 14e-6 + 2 * 5e-6, 1e-12);
  // three levels: what leaves the pods has come through the ports of the nodes
  const Cluster wide = pods();
  const Traffic three = collective_traffic(wide, CollectiveKind::AllReduce, spread_of(wide, first(64)), 16'000'000'000,
                                           Algorithm::Hierarchical);
  EXPECT_NEAR(three.seconds[1], (2 * 3.0 / 4 + 1.0 / 4) * 16e9 / 8 / 10e9, 1e-9);
  EXPECT_NEAR(three.seconds[2], 16e9 / 4 / 20e9, 1e-9);
}

TEST(Traffic, AllToAllSendsTheRestThroughTheOuterPorts) {
  for (const int ports : {1, 4, 8}) {
    const Cluster cluster = nodes_of_8(ports);
    const Traffic traffic =
        collective_traffic(cluster, CollectiveKind::AllToAll, spread_of(cluster, first(32)), 32'000'000);
    EXPECT_NEAR(traffic.seconds[0], 7e6 / 100e9, 1e-12);
    EXPECT_NEAR(traffic.seconds[1], 24e6 * 8 / ports / 10e9, 1e-9) << ports;
    EXPECT_NEAR(traffic.latency, 7 * 1e-6 + 24 * 5e-6, 1e-12);
  }
}

TEST(Traffic, TheGapReplacesTheLatencyOfAllButOneMessage) {
  Cluster cluster = flat(1e9, 10e-6);
  cluster.levels[0].gap = 1e-6;
  EXPECT_DOUBLE_EQ(collective_traffic(cluster, CollectiveKind::AllToAll, spread_of(cluster, first(11)), 0).latency,
                   19e-6);
}

TEST(Traffic, TheWorstUnitCounts) {
  const Cluster cluster = nodes_of_8(8);
  std::vector<int> members = first(8);
  members.push_back(8);  // one alone in its node: all that crosses goes through its port
  const Spread spread = spread_of(cluster, members);
  EXPECT_EQ(spread.levels[0].largest, 8);
  EXPECT_EQ(spread.levels[1].ports, 1);
  EXPECT_EQ(spread.levels[1].crossing, 8);  // 1 x 8 behind the port of the one; 1 x 1 behind the others
  const Traffic ring = collective_traffic(cluster, CollectiveKind::AllGather, spread, 9'000'000'000, Algorithm::Ring);
  EXPECT_NEAR(ring.seconds[1], 8e9 / 10e9, 1e-9);
  EXPECT_NEAR(ring.seconds[0], 8e9 / 100e9, 1e-9);
}

TEST(Traffic, OrderOfMembersDoesNotMatter) {
  const Cluster cluster = pods();
  std::mt19937_64 random(3);
  std::vector<int> members = first(40);
  const Spread sorted = spread_of(cluster, members);
  std::shuffle(members.begin(), members.end(), random);
  EXPECT_EQ(spread_of(cluster, members), sorted);
}

TEST(Traffic, SmallMessagesAreLessEfficient) {
  Cluster cluster = flat(1e9, 0);
  cluster.levels[0].efficiency = {{1024, 0.25}, {4096, 0.75}};
  EXPECT_EQ(efficiency_at(cluster.levels[0], 1), 0.25);
  EXPECT_DOUBLE_EQ(efficiency_at(cluster.levels[0], 2048), 0.5);  // half-way in log2
  EXPECT_EQ(efficiency_at(cluster.levels[0], 1e9), 0.75);
  EXPECT_DOUBLE_EQ(alone_seconds(transfer_traffic(cluster, 0, 2048)), 2048 / 0.5e9);
}

TEST(Traffic, NothingMovesAlone) {
  const Cluster cluster = nodes_of_8(8);
  for (const auto kind : {CollectiveKind::AllReduce, CollectiveKind::AllToAll, CollectiveKind::ReducePieces})
    EXPECT_EQ(collective_traffic(cluster, kind, spread_of(cluster, first(1)), 1'000'000), Traffic{});
}

}  // namespace
}  // namespace piper
