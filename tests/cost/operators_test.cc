// Computations priced by their operators.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cost/cluster.h"
#include "cost/hash_costs.h"
#include "cost/load_cluster.h"
#include "cost/what_if.h"
#include "must.h"

namespace piper {
namespace {

using ::testing::HasSubstr;

/// 4 multiprocessors that compute 1e12 operations and move 1e12 bytes a second; launches cost nothing.
DeviceKind device() {
  DeviceKind kind;
  kind.peak.fill(1e12);
  kind.memory_bandwidth = 1e12;
  kind.launch = 0;
  kind.operators = OperatorCosts{0, 4, 4, {{128, 128, 1}}};
  return kind;
}

DeviceWork product(int64_t count, int64_t rows, int64_t columns, int64_t depth) {
  return {1, 1, DeviceOperators{{{count, rows, columns, depth}}, 0, 1}};
}
double seconds(const DeviceKind& kind, const DeviceWork& work) {
  return compute_seconds(kind, DType::BFloat16, work);
}

constexpr double wave = 4 * 2 * 128 * 128 * 1024.0 / 1e12;  // of tiles of depth 1024

TEST(Operators, ProductsTakeWholeWavesOfWholeTiles) {
  EXPECT_DOUBLE_EQ(seconds(device(), product(1, 256, 256, 1024)), wave);
  EXPECT_DOUBLE_EQ(seconds(device(), product(1, 256, 129, 1024)), wave) << "the second column of tiles is as wide";
  EXPECT_DOUBLE_EQ(seconds(device(), product(1, 128, 128, 1024)), wave) << "three multiprocessors wait";
  EXPECT_DOUBLE_EQ(seconds(device(), product(1, 257, 256, 1024)), 2 * wave);
  EXPECT_DOUBLE_EQ(seconds(device(), product(4, 128, 128, 1024)), wave) << "products fill a wave together";
}

TEST(Operators, TheFastestTileIsUsed) {
  DeviceKind kind = device();
  kind.operators->tiles.push_back({64, 64, 0.5});
  EXPECT_DOUBLE_EQ(seconds(kind, product(1, 256, 256, 1024)), wave);
  EXPECT_DOUBLE_EQ(seconds(kind, product(1, 64, 64, 1024)), wave / 2) << "a quarter of the work at half the speed";
  kind.operators->tiles.clear();
  EXPECT_DOUBLE_EQ(seconds(kind, product(1, 128, 128, 1024)), wave / 4) << "what its operations take";
}

TEST(Operators, ProductsMoveTheirMatrices) {
  DeviceKind kind = device();
  kind.memory_efficiency = 0.5;
  EXPECT_DOUBLE_EQ(seconds(kind, product(1, 1024, 1024, 1)), 2 * (1024 * 1024 + 2 * 1024) / 0.5e12);
}

TEST(Operators, ProductsInFloat8TakeHalf) {
  DeviceWork work = product(1, 256, 256, 1024);
  work.operators->products[0].kind = ProductKind::Float8;
  EXPECT_DOUBLE_EQ(seconds(device(), work), wave / 2);
  EXPECT_DOUBLE_EQ(compute_seconds(device(), DType::Float32, work), wave) << "emulated";
  DeviceKind whole = device();
  whole.operators.reset();
  work.flops = 2 * 256 * 256 * 1024 + 1000;  // and something else
  EXPECT_DOUBLE_EQ(seconds(whole, work), (256 * 256 * 1024 + 1000) / 1e12);
}

TEST(Operators, OtherOperatorsMoveBytesAndKernelsAreLaunched) {
  DeviceKind kind = device();
  kind.launch = 1e-3;
  EXPECT_DOUBLE_EQ(seconds(kind, {1, 1, DeviceOperators{{}, 4'000'000'000, 3}}), 4e-3 + 3e-3);
}

TEST(Operators, TheLongerOfHostAndDeviceCounts) {
  DeviceKind kind = device();
  kind.operators->issue = 3e-3;
  const DeviceWork work{1, 1, DeviceOperators{{}, 4'000'000'000, 1}};  // 4 ms on the device
  kind.operators->sharpness = 2;
  EXPECT_DOUBLE_EQ(seconds(kind, work), 5e-3);
  kind.operators->sharpness = 1;
  EXPECT_DOUBLE_EQ(seconds(kind, work), 7e-3);
  kind.operators->sharpness = 100;
  EXPECT_NEAR(seconds(kind, work), 4e-3, 1e-9);
  EXPECT_EQ(seconds(kind, {1, 1, DeviceOperators{}}), 0);
}

TEST(Operators, WhereEitherSaysNothingComputationsArePricedAsAWhole) {
  const DeviceWork whole{2'000'000'000, 1'000'000'000, {}};
  EXPECT_DOUBLE_EQ(seconds(device(), whole), 2e-3);
  DeviceWork both = product(1, 256, 256, 1024);
  both.flops = whole.flops;
  DeviceKind plain = device();
  plain.operators.reset();
  EXPECT_DOUBLE_EQ(seconds(plain, both), 2e-3);
}

TEST(Operators, TheyAreReadFromTheFile) {
  const auto parse = [](const std::string& operators) {
    return parse_cluster(make_source("cluster", "[cluster]\nstep = \"2ms\"\n[device.gpu.operators]\n" + operators));
  };
  const Cluster cluster =
      must(parse("issue = \"50us\"\nsharpness = 3\nmultiprocessors = 108\ntiles = [[256, 128, 0.9]]"));
  EXPECT_EQ(cluster.step, 2e-3);
  EXPECT_EQ(cluster.kinds[0].operators, (OperatorCosts{50 * 1e-6, 3, 108, {{256, 128, 0.9}}}));
  Cluster other = cluster;
  other.kinds[0].operators->tiles[0].speed = 1;
  EXPECT_NE(hash_costs(cluster, nullptr), hash_costs(other, nullptr));
  EXPECT_EQ(changed(cluster, must(parse_what_if("issue=x2", cluster))).kinds[0].operators->issue,
            2 * cluster.kinds[0].operators->issue);
  const auto refusal = [&](const std::string& operators) {
    auto read = parse(operators);
    return read ? "accepted" : render(read.error());
  };
  EXPECT_THAT(refusal("sharpness = 0.5"), HasSubstr("sharpness must be from 1"));
  EXPECT_THAT(refusal("tiles = [[256, 128]]"), HasSubstr("a tile must be rows, columns and a share"));
  EXPECT_THAT(refusal("tiles = [[0, 128, 1]]"), HasSubstr("rows and columns of a tile must be from 1"));
  EXPECT_THAT(refusal("tiles = [[64, 128, 2]]"), HasSubstr("the share of the speed must be above 0"));
  EXPECT_THAT(refusal("isue = 1"), HasSubstr("issue"));
}

TEST(PrintCluster, IsReadAsItWas) {
  std::vector<Cluster> all = {Cluster{}, must(load_cluster(PIPER_SOURCE_DIR "/examples/cluster.toml"))};
  for (const ShippedCluster& shipped : shipped_clusters()) all.push_back(must(load_cluster(shipped.name)));
  for (const Cluster& cluster : all) {
    const std::string text = print(cluster);
    const Cluster again = must(parse_cluster(make_source("cluster", text)));
    EXPECT_EQ(print(again), text);
    EXPECT_EQ(again.levels.size(), cluster.levels.size());
    for (size_t l = 0; l < cluster.levels.size(); ++l)
      EXPECT_NEAR(again.levels[l].bandwidth / cluster.levels[l].bandwidth, 1, 1e-5) << cluster.name;
    EXPECT_EQ(again.kinds[0].operators.has_value(), cluster.kinds[0].operators.has_value());
    EXPECT_EQ(device_limit(again), device_limit(cluster));
  }
}

}  // namespace
}  // namespace piper
