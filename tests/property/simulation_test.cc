// Random models x random schedules x random clusters: alike devices simulated once give what all devices give.
#include <gtest/gtest.h>

#include "property/compiled_scenario.h"
#include "sim/simulate.h"

namespace piper::property {
namespace {

Cluster random_cluster(Random& random) {
  Cluster cluster;
  cluster.kinds[0].issue = random.below(2) ? 0 : 1e-6;
  cluster.slowdown = random.below(3) ? 0 : 0.3;
  cluster.levels.clear();
  int joins = 1;
  for (int level = 0, levels = 1 + static_cast<int>(random.below(3)); level < levels; ++level) {
    LinkLevel link;
    joins *= 2 + static_cast<int>(random.below(2));
    link.joins = level + 1 < levels ? joins : 0;
    link.ports = 1 + static_cast<int>(random.below(2));
    link.bandwidth = 1e6 * static_cast<double>(1 + random.below(1000));
    link.latency = 1e-6 * static_cast<double>(random.below(10));
    cluster.levels.push_back(link);
  }
  return cluster;
}

TEST(Simulation, AlikeDevicesOnceAreAllDevices) {
  int reduced_kinds = 0, devices = 0;
  for (int number = 0; number < cases(250, 3000); ++number) {
    const Scenario scenario = scenario_of(number);
    SCOPED_TRACE(shown(number, scenario));
    const auto result = compiled(scenario);
    if (!result) continue;
    Random random(static_cast<uint64_t>(number));
    const Cluster cluster = random_cluster(random);
    auto once = simulate(result->plan, cluster), all = simulate(result->plan, cluster, nullptr, {true, true});
    ASSERT_TRUE(once) << render(once.error());
    ASSERT_TRUE(all);
    ASSERT_NEAR(once->seconds, all->seconds, 1e-9 * all->seconds);
    for (size_t l = 0; l < all->levels.size(); ++l)
      ASSERT_NEAR(once->levels[l].bytes, all->levels[l].bytes, 1e-9 * (1 + all->levels[l].bytes));
    const auto again = simulate(result->plan, cluster);
    EXPECT_EQ(again->times.end, once->times.end) << "deterministic";
    reduced_kinds += static_cast<int>(once->devices.size());
    devices += static_cast<int>(all->devices.size());
  }
  EXPECT_LT(reduced_kinds, devices);
}

}  // namespace
}  // namespace piper::property
