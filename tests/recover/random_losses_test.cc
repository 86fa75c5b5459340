// Random schedules that lose random devices: what goes on without them is proved, uses none of them, and computes the
// whole step; or it is said why nothing does.
#include "recover/shrink.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ir/verify_dag.h"
#include "plan/verify_plan.h"
#include "property/compiled_scenario.h"
#include "property/symbolic_step.h"
#include "schedule/schedule_text.h"

namespace piper::property {
namespace {

DeviceList random_losses(Random& random, int devices) {
  DeviceList all;
  for (int d = 0; d < devices; ++d) all.push_back(d);
  random.shuffle(all);
  all.resize(static_cast<size_t>(std::min(random.between(1, 3), devices)));
  return all;
}

/// The step that goes on: of the same batch, every chunk in it, none of it on a lost device.
void expect_goes_on(const Scenario& scenario, const DeviceList& lost, const Schedule& schedule) {
  const std::string text = print(schedule);
  SCOPED_TRACE("goes on with\n" + text);
  const auto again = parse_schedule(make_source("shrunken", text));
  ASSERT_TRUE(again) << render(again.error());
  const auto result = compile(std::make_shared<const ModelGraph>(scenario.model.graph), *again);
  ASSERT_TRUE(result) << render(result.error());
  ASSERT_TRUE(verify(result->linear.dag));
  ASSERT_TRUE(verify(result->plan));
  for (const PlanTemplate& of : result->plan.templates)
    for (const int device : of.devices) EXPECT_EQ(std::ranges::count(lost, device), 0) << "device " << device;
  // every computation of every slice, so that their samples are the batch
  const TrainingDag& dag = result->linear.dag;
  EXPECT_EQ(scenario.model.graph.step.batch % dag.slices(), 0);
  const ComputeIndex computations(dag);
  for (size_t c = 0; c < dag.model->chunks.size(); ++c)
    for (int slice = 0; slice < dag.slices(); ++slice)
      EXPECT_TRUE(computations.find(ChunkId(c), Pass::F, slice).valid()) << c << " of slice " << slice;
  const std::vector<std::string> faults = run_symbolically(result->linear, result->plan);
  EXPECT_TRUE(faults.empty()) << fmt::format("{}", fmt::join(faults, "\n"));
}

TEST(RandomLosses, GoOnWithTheWholeStep) {
  const Cluster cluster;
  const std::optional<CostTable> costs;
  std::map<std::string, int> outcomes;
  int all = 0;
  for (int number = 0; number < cases(120, 4'000); ++number) {
    const Scenario scenario = scenario_of(number);
    const auto before = compiled(scenario);
    if (!before) continue;
    Random random(77'000ULL + static_cast<uint64_t>(number));
    const DeviceList lost = random_losses(random, before->linear.dag.devices);
    SCOPED_TRACE(shown(number, scenario) + "without " + print_devices(lost));
    const auto without = shrink({*parsed(scenario), before->linear.dag.model, cluster, costs}, lost);
    ++all;
    if (!without) {
      ++outcomes[std::string(name(without.error().code))];
      ASSERT_EQ(without.error().code, ErrorCode::E319) << render(without.error());
      continue;
    }
    ++outcomes["goes on"];
    expect_goes_on(scenario, lost, without->schedule);
    if (HasFailure()) return;
  }
  std::string table;
  for (const auto& [outcome, count] : outcomes) table += fmt::format("{} {}  ", outcome, count);
  fmt::print("{} losses: {}\n", all, table);
  EXPECT_GE(outcomes["goes on"] * 100, all * 50);
}

}  // namespace
}  // namespace piper::property
