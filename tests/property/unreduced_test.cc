// With ZeRO 2 and 3, random schedules never let more gradients wait for their reduction than computations of twice the
// largest size make.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/device_classes.h"
#include "ir/local_size.h"
#include "property/compiled_scenario.h"

namespace piper::property {
namespace {

/// The reductions of gradients of slices, and what computations make for them.
struct Reductions {
  std::vector<NodeId> all;
  std::vector<double> ready;   // by node: when everything before it has ended
  std::vector<int64_t> bytes;  // by node: that a reduction takes, or a computation makes

  explicit Reductions(const LinearDag& linear) : ready(linear.dag.nodes.size(), 0), bytes(linear.dag.nodes.size(), 0) {
    const TrainingDag& dag = linear.dag;
    for (const Edge& edge : dag.edges) {
      double& at = ready[edge.to.index()];
      at = std::max(at, linear.end[edge.from.index()]);
      if (edge.item.kind != Item::Kind::Gradients || dag[edge.to].tags.slice < 0) continue;
      bytes[edge.to.index()] = moved_bytes(dag, dag[edge.to]);
      bytes[edge.from.index()] += bytes[edge.to.index()];
      if (std::ranges::find(all, edge.to) == all.end()) all.push_back(edge.to);
    }
  }
};

/// How many computations wait for reductions. Fails where one should have and did not.
int expect_few_unreduced(const LinearDag& linear) {
  const TrainingDag& dag = linear.dag;
  const Reductions reductions(linear);
  const DeviceClasses classes = device_classes(dag);
  const auto on = [&](NodeId id, int device_class) {
    return std::ranges::find(classes.of_group(dag[id].group), device_class) != classes.of_group(dag[id].group).end();
  };
  for (int c = 0; c < static_cast<int>(classes.count()); ++c) {
    int64_t most = 0;
    for (const NodeId id : linear.order)
      if (is_compute(dag[id]) && on(id, c)) most = std::max(most, reductions.bytes[id.index()]);
    for (const NodeId id : linear.order) {
      if (!is_compute(dag[id]) || reductions.bytes[id.index()] == 0 || !on(id, c)) continue;
      const double start = linear.start[id.index()];
      int64_t waiting = 0;
      for (const NodeId reduction : reductions.all)
        if (on(reduction, c) && reductions.ready[reduction.index()] <= start && start < linear.end[reduction.index()])
          waiting += reductions.bytes[reduction.index()];
      EXPECT_LE(waiting, 2 * most) << name_of(dag, id);
    }
  }
  return static_cast<int>(std::ranges::count_if(dag.edges, [&](const Edge& edge) {
    return edge.item.kind == Item::Kind::None && reductions.bytes[edge.from.index()] > 0 &&
           reductions.bytes[edge.to.index()] > 0 && !is_compute(dag[edge.from]) && is_compute(dag[edge.to]);
  }));
}

TEST(Unreduced, FewGradientsWaitForTheirReduction) {
  int with_waits = 0;
  for (int number = 0; number < cases(500, 5'000); ++number) {
    const Scenario scenario = scenario_of(number);
    const auto made = compiled(scenario);
    if (!made) continue;
    SCOPED_TRACE(shown(number, scenario));
    if (expect_few_unreduced(made->linear) > 0) ++with_waits;
    if (HasFailure()) return;
  }
  fmt::print("in {} schedules computations wait for reductions\n", with_waits);
  EXPECT_GT(with_waits, 0);
}

}  // namespace
}  // namespace piper::property
