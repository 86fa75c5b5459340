// What a cluster says about its devices, and what is shipped.
#include "cost/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>

#include "base/read_file.h"
#include "cost/hash_costs.h"
#include "cost/load_cluster.h"
#include "must.h"

namespace piper {
namespace {

using ::testing::HasSubstr;

Cluster parse(const std::string& text) {
  return must(parse_cluster(make_source("cluster", text)));
}

std::string refusal(const std::string& text) {
  auto cluster = parse_cluster(make_source("cluster", text));
  return cluster ? "accepted" : render(cluster.error());
}

const std::string mixed = PIPER_SOURCE_DIR "/examples/cluster.toml";

TEST(Cluster, ShippedOnesAreSound) {
  ASSERT_EQ(shipped_clusters().size(), 8u);
  for (const ShippedCluster& shipped : shipped_clusters()) {
    const Cluster cluster = must(load_cluster(shipped.name));
    EXPECT_EQ(cluster.name, shipped.name);
    EXPECT_TRUE(check_devices(cluster, std::min(device_limit(cluster), 65536), {}));
    EXPECT_TRUE(check_dtype(cluster, 1, DType::BFloat16)) << shipped.name;
    EXPECT_TRUE(kind_of(cluster, 0).memory) << shipped.name;
  }
}

TEST(Cluster, UnknownNamesListTheShippedOnes) {
  auto unknown = load_cluster("h10");
  ASSERT_FALSE(unknown);
  const std::string text = render(unknown.error());
  EXPECT_THAT(text, HasSubstr("E108"));
  EXPECT_THAT(text, HasSubstr("a100-40, a100-80, a100-megatron, b200, ethernet, h100, h200, laptop"));
  EXPECT_FALSE(load_cluster("no/such.toml"));
}

TEST(Cluster, DevicesAreNumberedNodeByNode) {
  const Cluster cluster = must(load_cluster(mixed));
  EXPECT_EQ(device_limit(cluster), 512);
  EXPECT_EQ(kind_of(cluster, 255).name, "h100");
  EXPECT_EQ(kind_of(cluster, 256).name, "a100");
  EXPECT_EQ(common_level(cluster, 0, 7), 0);
  EXPECT_EQ(common_level(cluster, 7, 8), 1);
  EXPECT_EQ(common_level(cluster, 255, 256), 2);
  EXPECT_EQ(port_of(cluster, 0, 5), 5);
  EXPECT_EQ(port_of(cluster, 1, 5), 5);
  EXPECT_EQ(port_of(cluster, 2, 4), 1);  // 64 ports for 256 devices
  EXPECT_EQ(port_of(cluster, 2, 256), 64);
  EXPECT_FALSE(check_devices(cluster, 513, {}));
}

TEST(Cluster, PortsAreGivenEvenlyToDevices) {
  const Cluster shared = parse("[[links]]\njoins = 8\n[[links]]\nports = 2\nbandwidth = \"10GB/s\"\n");
  EXPECT_EQ(port_of(shared, 1, 3), 0);
  EXPECT_EQ(port_of(shared, 1, 4), 1);
  EXPECT_EQ(port_of(shared, 1, 8), 2);
  EXPECT_EQ(port_bandwidth(shared, 1), 10e9);
  const Cluster several = parse("[[links]]\njoins = 8\n[[links]]\nports = 32\nbandwidth = \"10GB/s\"\n");
  EXPECT_EQ(port_of(several, 1, 3), 3);
  EXPECT_EQ(port_bandwidth(several, 1), 40e9);
}

TEST(Cluster, NothingSaidIsTheDefault) {
  EXPECT_EQ(parse(""), Cluster{});
  EXPECT_EQ(device_limit(Cluster{}), INT_MAX);
  EXPECT_EQ(common_level(Cluster{}, 0, 1 << 20), 0);
}

TEST(Cluster, ComputationIsTheLongerOfTwo) {
  DeviceKind kind;
  kind.peak.fill(100e12);
  kind.memory_bandwidth = 1e12;
  kind.compute_efficiency = 0.5;
  kind.launch = 0;
  EXPECT_DOUBLE_EQ(compute_seconds(kind, DType::BFloat16, {50'000'000'000'000, 1, {}}), 1);
  EXPECT_DOUBLE_EQ(compute_seconds(kind, DType::BFloat16, {1, 2'000'000'000'000, {}}), 2);
  kind.launch = 1e-3;
  EXPECT_DOUBLE_EQ(compute_seconds(kind, DType::BFloat16, {}), 1e-3);
}

TEST(Cluster, MistakesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[[links]]\nbandwidth = -1e9\n", "bandwidth must be above 0"},
      {"[[links]]\nbandwidth = 0\n", "bandwidth must be above 0"},
      {"[[links]]\nbandwidth = nan\n", "bandwidth must be a text such as"},
      {"[[links]]\nbandwidth = inf\n", "bandwidth must be a text such as"},
      {"[[links]]\nbandwidth = 450\n", "write it with a unit"},
      {"[[links]]\nbandwidth = \"450Gb/s\"\n", "Gbit/s"},
      {"[[links]]\nlatency = 4\n", "write it with a unit"},
      {"[[links]]\nlatency = \"-1us\"\n", "latency must not be negative"},
      {"[[links]]\njoins = 1\n", "joins must be from 2"},
      {"[[links]]\nreduce_share = 0.5\n", "means nothing without reduces"},
      {"[[links]]\nefficiency = [[1, 0]]\n", "above 0 and at most 1"},
      {"[[links]]\nefficiency = [[\"1MB\", 0.5], [\"1KB\", 0.6]]\n", "the sizes must grow"},
      {"[[links]]\nefficiency = [0.5]\n", "a size and a share"},
      {"[[links]]\n[[links]]\n", "has nothing to join"},
      {"[[links]]\njoins = 8\n[[links]]\njoins = 12\n", "not several times the 8"},
      {"[[links]]\njoins = 8\n[[links]]\nports = 3\n", "cannot be given evenly"},
      {"[[links]]\njoins = 8\n[[nodes]]\ndevices = 6\n", "cuts nodes of 6 apart"},
      {"[[links]]\njoins = 8\n[[nodes]]\ncount = 2\ndevices = 8\n", "no link joins devices 0 and 8"},
      {"[[nodes]]\ndevices = 8\n[[nodes]]\ncount = 2\n", "only the last [[nodes]] may leave out count"},
      {"[device.a]\n[device.b]\n", "no [[nodes]] have device = \"a\""},
      {"[device.a]\n[device.b]\n[[nodes]]\n", "does not say which device"},
      {"[device.a]\n[[nodes]]\ndevice = \"b\"\n", "there is no [device.b]"},
      {"[device]\nmemory = \"1GB\"\n", "must say which kind of device"},
      {"[device.a]\nmemory = 80\n", "without a unit"},
      {"[device.a]\npeak = \"1TFLOPS\"\n", "must say for which dtype"},
      {"[device.a.peak]\nbfloat = \"1TFLOPS\"\n", "did you mean \"bfloat16\"?"},
      {"[device.a.peak]\nbfloat16 = 989\n", "write it with a unit"},
      {"[device.a]\ncompute_efficiency = 1.5\n", "must be a share"},
      {"[cluster]\nslowdown = 1\n", "below 1"},
      {"[[links]]\n[[nodes]]\ndevices = 8\nprocessors = 3\n", "cannot be given evenly to 8"},
      {"[[links]]\n[[nodes]]\ndevices = 8\ntogether = 1.1\n", "means nothing"},
      {"[[links]]\n[[nodes]]\ndevices = 8\nprocessors = 1\ntogether = 9\n", "above 0, and at most"},
      {"[link]\n", "did you mean \"links\"?"},
      {"[[links]]\njoins=2\n[[links]]\njoins=4\n[[links]]\njoins=8\n[[links]]\njoins=16\n[[links]]\n",
       "more than 4 levels"},
  };
  for (const auto& [text, message] : cases) {
    const std::string said = refusal(text);
    EXPECT_THAT(said, HasSubstr(message)) << text;
    EXPECT_THAT(said, HasSubstr("error[E111]")) << text;
    EXPECT_THAT(said, HasSubstr("cluster:")) << text << said;
  }
}

TEST(Cluster, DevicesMayShareProcessors) {
  const Cluster cluster = must(parse_cluster(make_source(
      "cluster",
      "[[links]]\n[[nodes]]\ncount = 2\n[[nodes]]\ncount = 1\ndevices = 6\nprocessors = 2\ntogether = 1.25\n")));
  EXPECT_FALSE(shared_processor(cluster, 1));
  for (const auto& [device, first] : {std::pair{2, 2}, {4, 2}, {5, 5}, {7, 5}}) {
    ASSERT_TRUE(shared_processor(cluster, device)) << device;
    EXPECT_EQ(shared_processor(cluster, device)->first, first) << device;
    EXPECT_EQ(shared_processor(cluster, device)->together, 1.25);
  }
}

TEST(Cluster, TheHashIsOfWhatDecidesTheOrder) {
  Cluster cluster = must(load_cluster("h100"));
  const uint64_t before = hash_costs(cluster, nullptr);
  cluster.name = "other";
  cluster.kinds[0].memory = 1;
  EXPECT_EQ(hash_costs(cluster, nullptr), before);
  for (auto change :
       {+[](Cluster& c) { c.levels[1].latency *= 2; }, +[](Cluster& c) { c.levels[0].efficiency[0].share /= 2; },
        +[](Cluster& c) { c.kinds[0].peak[2] *= 2; }, +[](Cluster& c) { c.levels[0].reduces = false; },
        +[](Cluster& c) { c.nodes[0].devices = 4; }}) {
    Cluster changed = cluster;
    change(changed);
    EXPECT_NE(hash_costs(changed, nullptr), before);
  }
  CostTable table;
  table.seconds[{"layer.0", Pass::F, 1}] = 1;
  EXPECT_NE(hash_costs(cluster, &table), before);
}

}  // namespace
}  // namespace piper
