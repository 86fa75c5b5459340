// Plans run on paper: times by hand, what must hold for every plan, and links that are shared.
#include "sim/simulate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compiled_examples.h"
#include "plan/memory_report.h"
#include "plan/plan_text.h"
#include "sim/critical_path.h"
#include "sim/device_use.h"
#include "sim/memory_curve.h"

namespace piper {
namespace {

/// Flops take nanoseconds, bytes of messages too; nothing else costs anything.
Cluster simple_cluster() {
  Cluster cluster;
  DeviceKind& kind = cluster.kinds[0];
  kind.peak.fill(1e9);
  kind.memory_bandwidth = 1e30;
  kind.launch = kind.issue = 0;
  cluster.levels[0].bandwidth = 1e9;
  cluster.levels[0].latency = 0;
  return cluster;
}

/// Nodes of two devices; inside a node links are fast, and each node has one port to the others.
Cluster two_levels() {
  Cluster cluster = simple_cluster();
  cluster.kinds[0].issue = 1e-8;
  cluster.levels = {LinkLevel{}, LinkLevel{}};
  cluster.levels[0].joins = 2;
  cluster.levels[0].bandwidth = 4e9;
  cluster.levels[0].latency = 1e-7;
  cluster.levels[1].bandwidth = 1e9;
  cluster.levels[1].latency = 5e-7;
  return cluster;
}

Plan plan_of(const std::string& text) {
  auto plan = parse_plan(make_source("plan", text));
  EXPECT_TRUE(plan) << render(plan.error());
  return *plan;
}

Simulation must(Result<Simulation> simulation) {
  if (!simulation) throw std::runtime_error(render(simulation.error()));
  return *std::move(simulation);
}

/// Both ends of a transfer run beside a computation on each device.
const std::string transfer_plan = R"(plan small costs=0
stream compute
stream p2p
name work
name x
group [0]
group [1]
work work F samples=1 float32 flops=100 bytes=0 group=0
work work F samples=2 float32 flops=200 bytes=0 group=0
communication x transfer 0 -> 1 bytes=50
template [0]
  buffer 0 activations 50 x
  op 0 run work on compute work=0 writes(%0)
  op 1 send x on p2p communication=0 waits(0) reads(%0) frees(%0)
  op 2 run work on compute work=1
template [1]
  buffer 0 activations 50 x
  op 0 recv x on p2p communication=0 writes(%0)
  op 1 run work on compute work=1
  op 2 run work on compute work=0 waits(0) reads(%0) frees(%0)
)";

TEST(Simulate, TimesOfASmallPlan) {
  const Plan plan = plan_of(transfer_plan);
  const Simulation s = must(simulate(plan, simple_cluster()));
  const std::vector<double> start = {0, 100e-9, 100e-9, 100e-9, 0, 200e-9};
  const std::vector<double> end = {100e-9, 150e-9, 300e-9, 150e-9, 200e-9, 300e-9};
  ASSERT_EQ(s.times.start.size(), 6u);
  EXPECT_THAT(s.times.start, testing::Pointwise(testing::DoubleEq(), start));
  EXPECT_THAT(s.times.end, testing::Pointwise(testing::DoubleEq(), end));
  EXPECT_DOUBLE_EQ(s.seconds, 300e-9);
  const sim::SimulatedOpId none, first{0}, fifth{4};
  EXPECT_THAT(s.times.cause, testing::ElementsAre(none, first, first, first, none, fifth));
  const TimeUse use = device_use(plan, s).back();
  EXPECT_DOUBLE_EQ(use.compute, 300e-9);
  EXPECT_DOUBLE_EQ(use.exposed, 0);
  EXPECT_DOUBLE_EQ(s.levels[0].bytes, 50);
  EXPECT_DOUBLE_EQ(s.levels[0].busiest, 50e-9);
}

TEST(Simulate, TheHostIssuesOneOperationAfterTheOther) {
  Cluster cluster = simple_cluster();
  cluster.kinds[0].issue = 150e-9;
  const Simulation s = must(simulate(plan_of(transfer_plan), cluster));
  EXPECT_DOUBLE_EQ(s.times.start[sim::SimulatedOpId(0)], 150e-9);
  EXPECT_DOUBLE_EQ(s.times.start[sim::SimulatedOpId(1)], 300e-9);  // issued second, though the first has ended at 250
  EXPECT_DOUBLE_EQ(s.times.start[sim::SimulatedOpId(2)], 450e-9);
}

TEST(Simulate, ComputationIsSlowerBesideCommunication) {
  Cluster cluster = simple_cluster();
  cluster.slowdown = 0.5;
  const Simulation s = must(simulate(plan_of(transfer_plan), cluster));
  EXPECT_NEAR(s.times.end[sim::SimulatedOpId(2)], 325e-9, 1e-15);  // 50 of its 200 ns at half speed
  EXPECT_NEAR(s.times.end[sim::SimulatedOpId(4)], 225e-9, 1e-15);
}

/// Two devices that compute for 100 ns each, the second one twice.
constexpr const char* two_computations = R"(plan small costs=0
stream compute
name x
group [0]
group [1]
work x F samples=1 float32 flops=100 bytes=0 group=0
work x F samples=1 float32 flops=100 bytes=0 group=1
template [0]
  op 0 run x F on compute work=0
template [1]
  op 0 run x F on compute work=1
  op 1 run x F on compute work=1
)";

TEST(Simulate, DevicesThatShareAProcessorShareItsTime) {
  Cluster cluster = simple_cluster();
  const auto near = [](std::vector<double> expected) {
    return testing::Pointwise(testing::DoubleNear(1e-15), std::move(expected));
  };
  const auto ends = [&] { return must(simulate(plan_of(two_computations), cluster)).times.end; };
  EXPECT_THAT(ends(), near({100e-9, 100e-9, 200e-9}));
  cluster.nodes = {{.count = 1, .devices = 2, .kind = 0, .processors = 1}};
  EXPECT_THAT(ends(), near({200e-9, 200e-9, 300e-9}));
  cluster.nodes[0].together = 1.25;
  EXPECT_THAT(ends(), near({160e-9, 160e-9, 260e-9}));
  cluster.nodes[0].together = 3;  // nothing is faster than alone
  EXPECT_THAT(ends(), near({100e-9, 100e-9, 200e-9}));
  cluster.nodes[0].together = 1;
  cluster.nodes[0].processors = 2;
  EXPECT_THAT(ends(), near({100e-9, 100e-9, 200e-9}));
}

/// Two all-reduces on two streams of a pair of devices, and one of them alone.
std::string reduces(const std::string& streams) {
  return fmt::format(R"(plan small costs=0
stream a
stream b
name x
partition 2 [0, 1]
communication x over 0 bytes=100
communication x over 0 bytes=100
template [0, 1]
  buffer 0 gradients 100 x persistent
  buffer 1 gradients 100 x persistent
  op 0 all_reduce x on a communication=0 writes(%0)
  op 1 all_reduce x on {} communication=1 writes(%1)
)",
                     streams);
}

TEST(Simulate, FlowsThatShareALinkShareItsBandwidth) {
  const Simulation apart = must(simulate(plan_of(reduces("b")), simple_cluster()));
  EXPECT_NEAR(apart.times.end[sim::SimulatedOpId(0)], 200e-9, 1e-15);  // 100 ns each if alone
  EXPECT_NEAR(apart.times.end[sim::SimulatedOpId(1)], 200e-9, 1e-15);
  const Simulation one_stream = must(simulate(plan_of(reduces("a")), simple_cluster()));
  EXPECT_NEAR(one_stream.times.end[sim::SimulatedOpId(0)], 100e-9, 1e-15);
  EXPECT_NEAR(one_stream.times.end[sim::SimulatedOpId(1)], 200e-9, 1e-15);
  const Simulation free = must(simulate(plan_of(reduces("b")), simple_cluster(), nullptr, {false, false}));
  EXPECT_NEAR(free.times.end[sim::SimulatedOpId(1)], 100e-9, 1e-15);
}

TEST(Simulate, APlanThatSaysNothingAboutItsWorkIsRefused) {
  const Plan plan = plan_of("plan small costs=0\nstream a\nname x\ntemplate [0]\n  op 0 run x on a\n");
  auto s = simulate(plan, simple_cluster());
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, ErrorCode::E408);
}

class Examples : public testing::TestWithParam<examples::Example> {
 protected:
  Plan plan() const {
    auto compiled = examples::compile(GetParam());
    EXPECT_TRUE(compiled) << render(compiled.error());
    return compiled->plan;
  }
};

/// Waits, streams and the host's order are kept; busy and idle time make up the step.
void expect_sound(const Plan& plan, const Simulation& s) {
  const auto use = device_use(plan, s);
  for (const sim::LaneId lane : s.devices.ids()) {
    const PlanTemplate& t = plan.templates[s.plan_of[lane]];
    Table<PlanStreamId, double> free(plan.streams.size(), 0);
    for (const OpId i : t.ops.ids()) {
      const double start = s.times.start[s.times.at(lane, i)], end = s.times.end[s.times.at(lane, i)];
      EXPECT_LE(start, end);
      EXPECT_GE(start, free[t.ops[i].stream]);
      free[t.ops[i].stream] = end;
      for (const OpId wait : t.ops[i].waits) EXPECT_GE(start, s.times.end[s.times.at(lane, wait)]);
    }
    EXPECT_NEAR(use[lane].compute + use[lane].exposed + use[lane].idle, s.seconds, 1e-12 * s.seconds);
    EXPECT_LE(use[lane].exposed, use[lane].communication * (1 + 1e-12));
    int64_t highest = 0;
    const auto curve = memory_curve(plan, s, lane);
    for (const MemoryPoint& point : curve) highest = std::max(highest, point.total());
    EXPECT_EQ(highest, memory_peak(plan, t).total);
    EXPECT_EQ(curve.front().bytes, curve.back().bytes) << "memory returns to its start";
  }
}

/// Every operation at the same time, whether alike devices are simulated once or all of them.
void expect_same(const Plan& plan, const Simulation& reduced, const Simulation& full) {
  ASSERT_NEAR(reduced.seconds, full.seconds, 1e-9 * full.seconds);
  for (const sim::LaneId lane : reduced.devices.ids())
    for (const int device : reduced.devices[lane]) {
      const auto found = std::find_if(full.devices.begin(), full.devices.end(),
                                      [&](const DeviceList& list) { return list[0] == device; });
      const sim::LaneId own(static_cast<size_t>(found - full.devices.begin()));
      for (const OpId i : plan.templates[reduced.plan_of[lane]].ops.ids())
        ASSERT_NEAR(reduced.times.end[reduced.times.at(lane, i)], full.times.end[full.times.at(own, i)],
                    1e-9 * full.seconds)
            << device << " op " << i.value;
    }
  for (size_t l = 0; l < full.levels.size(); ++l) {
    EXPECT_NEAR(reduced.levels[l].bytes, full.levels[l].bytes, 1e-9 * (1 + full.levels[l].bytes));
    EXPECT_NEAR(reduced.levels[l].busiest, full.levels[l].busiest, 1e-9 * full.seconds);
  }
}

TEST_P(Examples, AreSoundAndEqualWithAllDevices) {
  const Plan compiled = plan();
  for (const Cluster& cluster : {simple_cluster(), two_levels()}) {
    const Simulation reduced = must(simulate(compiled, cluster));
    expect_sound(compiled, reduced);
    expect_same(compiled, reduced, must(simulate(compiled, cluster, nullptr, {true, true})));
    const Simulation free = must(simulate(compiled, cluster, nullptr, {false, false}));
    EXPECT_LE(free.seconds, reduced.seconds * (1 + 1e-12)) << "shared links only slow down";
    Cluster slow = cluster;
    slow.slowdown = 0.2;
    const Simulation slowed = must(simulate(compiled, slow));
    expect_sound(compiled, slowed);
    EXPECT_GE(slowed.seconds, reduced.seconds * (1 - 1e-12));
    expect_same(compiled, slowed, must(simulate(compiled, slow, nullptr, {true, true})));
  }
}

TEST_P(Examples, TheCriticalPathExplainsTheStep) {
  const Plan compiled = plan();
  const Simulation s = must(simulate(compiled, two_levels()));
  const auto path = critical_path(s);
  double at = 0, sum = 0;
  for (const CriticalStep& step : path) {
    EXPECT_DOUBLE_EQ(step.start - step.issued, at);
    at = step.end;
  }
  EXPECT_DOUBLE_EQ(at, s.seconds);
  for (const PathShare& share : path_shares(compiled, s, path)) sum += share.seconds;
  EXPECT_NEAR(sum, s.seconds, 1e-12 * s.seconds);
}

INSTANTIATE_TEST_SUITE_P(All, Examples, testing::ValuesIn(examples::all()), examples::name_of);

TEST(Symmetry, ReplicasAreSimulatedOnceOnlyWhereTheClusterIsSymmetric) {
  auto plan = examples::compile({"dp",
                                 "devices(4)\nsplit(batch, parts=2, as=mb)\nplace({}, devices=[0..3])\n"
                                 "replicate({}, devices=[0..3], zero=1, bucket=8KB)\n"});
  ASSERT_TRUE(plan) << render(plan.error());
  EXPECT_EQ(must(simulate(plan->plan, simple_cluster())).devices.size(), 1u);
  EXPECT_EQ(must(simulate(plan->plan, two_levels())).devices.size(), 1u);
  Cluster uneven = two_levels();
  uneven.levels[0].joins = 3;  // a node of three, a node of one
  const Simulation reduced = must(simulate(plan->plan, uneven));
  EXPECT_EQ(reduced.devices.size(), 2u);
  expect_same(plan->plan, reduced, must(simulate(plan->plan, uneven, nullptr, {true, true})));
}

/// The original work's Figure 3: all-to-alls of experts beside all-reduces of gradients. Where both run decides.
TEST(Simulate, StreamChoicesGiveDifferentAnswers) {
  std::set<double> answers;
  for (const std::string reduce :
       {"reduce_stream=dp, bucket=20KB", "reduce_stream=ep, bucket=20KB", "reduce_stream=ep, bucket=4KB"}) {
    auto compiled = examples::compile(
        {"figure 3", fmt::format("mesh(dp=2)\nsplit(batch, parts=4, as=mb)\nplace({{}}, mesh={{}})\n"
                                 "replicate({{}}, along=dp, zero=2, {})\nshard({{experts=*}}, along=dp, stream=ep)\n",
                                 reduce)});
    ASSERT_TRUE(compiled) << render(compiled.error());
    Cluster cluster = simple_cluster();
    cluster.kinds[0].peak.fill(1e10);
    cluster.levels[0].latency = 1e-6;
    cluster.levels[0].bandwidth = 1e8;
    answers.insert(must(simulate(compiled->plan, cluster)).seconds);
  }
  EXPECT_EQ(answers.size(), 3u);
}

}  // namespace
}  // namespace piper
