// Random models x random schedules: what compiles verifies, computes the right step, and survives its text forms.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/dag_text.h"
#include "ir/verify_dag.h"
#include "model/model_text.h"
#include "model/verify_model.h"
#include "plan/plan_text.h"
#include "plan/verify_plan.h"
#include "property/compiled_scenario.h"
#include "property/symbolic_step.h"
#include "schedule/schedule_text.h"

namespace piper::property {
namespace {

int scenarios() {
  return cases(1'500, 20'000);
}

/// Reasons for which a schedule that looks legal may be refused; see docs/errors.
const std::set<ErrorCode> documented = {
    ErrorCode::E203,  // a prefetch where the chunks with zero=3 have no parameters
    ErrorCode::E301,  // tied parameters under two replicate directives
    ErrorCode::E303,  // brackets or orders against skip connections
    ErrorCode::E305,  // overlapped parts that depend on each other
    ErrorCode::E310,  // tied parameters on overlapping devices
    ErrorCode::E311,  // a value without batch dimension between groups of different size
    ErrorCode::E312,  // backward of what is selected needs nothing of its forward
    ErrorCode::E316,  // as E203, where other chunks gather after their update
};

void expect_round_trips(const Scenario& scenario, const Compiled& compiled) {
  const auto model = parse_model(make_source("model", print(scenario.model.graph)));
  ASSERT_TRUE(model);
  EXPECT_EQ(*model, scenario.model.graph);
  const auto schedule = parsed(scenario);
  EXPECT_EQ(*parse_schedule(make_source("schedule", print(*schedule))), *schedule);
  EXPECT_EQ(*parse_schedule(make_source("written out", print(compiled.schedule))), compiled.schedule);
  const auto plan = parse_plan(make_source("plan", print(compiled.plan)));
  ASSERT_TRUE(plan);
  EXPECT_EQ(*plan, compiled.plan);
  const std::string dag_text = print(compiled.linear.dag);
  const auto dag = parse_dag(make_source("dag", dag_text), compiled.linear.dag.model);
  ASSERT_TRUE(dag);
  EXPECT_EQ(print(*dag), dag_text);
}

constexpr int parts = 4;  // which may run side by side

class ScenariosPart : public testing::TestWithParam<int> {};

TEST_P(ScenariosPart, CompileVerifyAndComputeTheRightStep) {
  std::map<std::string, int> outcomes;
  int all = 0;
  for (int number = GetParam(); number < scenarios(); number += parts, ++all) {
    const Scenario scenario = scenario_of(number);
    SCOPED_TRACE(shown(number, scenario));
    ASSERT_TRUE(verify(scenario.model.graph));
    auto result = compiled(scenario);
    if (!result) {
      ++outcomes[std::string(name(result.error().code))];
      ASSERT_TRUE(documented.contains(result.error().code)) << render(result.error());
      continue;
    }
    ++outcomes["compiled"];
    ASSERT_TRUE(verify(result->linear.dag));
    ASSERT_TRUE(verify(result->plan));
    const std::vector<std::string> faults = run_symbolically(result->linear, result->plan);
    ASSERT_TRUE(faults.empty()) << fmt::format("{}", fmt::join(faults, "\n"));
    expect_round_trips(scenario, *result);
    if (HasFailure()) return;
  }
  std::string table;
  for (const auto& [outcome, count] : outcomes) table += fmt::format("{} {}  ", outcome, count);
  fmt::print("{} scenarios: {}\n", all, table);
  EXPECT_GE(outcomes["compiled"] * 100, all * 60);
}
INSTANTIATE_TEST_SUITE_P(All, ScenariosPart, testing::Range(0, parts));

TEST(Scenarios, CompilingTwiceGivesTheSameHash) {
  for (int number = 0; number < scenarios() / 10; ++number) {
    const Scenario scenario = scenario_of(number);
    auto one = compiled(scenario), two = compiled(scenario);
    ASSERT_EQ(bool(one), bool(two));
    if (!one) continue;
    EXPECT_EQ(hash(one->plan), hash(two->plan)) << shown(number, scenario);
  }
}

/// The plan in words: without numbers that depend on where a directive stands in the file.
std::string in_words(const Plan& plan) {
  std::string out;
  for (const PlanTemplate& t : plan.templates) {
    out += fmt::format("on {}\n", print_devices(t.devices));
    for (const PlannedOp& op : t.ops) {
      out += fmt::format("{} {} {} waits", name(op.kind), describe(plan, op.label), plan.streams[op.stream]);
      for (const OpId wait : op.waits) out += fmt::format(" {}", wait.value);
      for (const auto* list : {&op.reads, &op.writes, &op.frees}) {
        out += " |";
        for (const BufferId b : *list)
          out += fmt::format(" {}({})", describe(plan, t.buffers[b].label), t.buffers[b].bytes);
      }
      if (op.communication.valid()) {
        const Communication& c = plan.communications[op.communication];
        if (c.transfer)
          out += fmt::format(" {} to {}", print_devices(plan.groups[c.from]), print_devices(plan.groups[c.to]));
        else
          out += fmt::format(" among {}", print_devices(plan.partitions[c.over].members));
      }
      out += "\n";
    }
  }
  return out;
}

TEST(Scenarios, OrderOfStructureDirectivesDoesNotMatter) {
  int compared = 0;
  for (int number = 0; number < scenarios() / 5; ++number) {
    const Scenario scenario = scenario_of(number);
    auto first = compiled(scenario);
    if (!first) continue;
    Schedule shuffled = *parsed(scenario);
    const auto time = std::find_if(shuffled.directives.begin(), shuffled.directives.end(),
                                   [](const Directive& d) { return is_time_directive(d.body); });
    std::vector<Directive> structure(shuffled.directives.begin(), time);
    Random(static_cast<uint64_t>(number)).shuffle(structure);
    std::copy(structure.begin(), structure.end(), shuffled.directives.begin());
    auto second = compile(std::make_shared<const ModelGraph>(scenario.model.graph), shuffled);
    ASSERT_TRUE(second) << shown(number, scenario) << render(second.error());
    ASSERT_EQ(in_words(first->plan), in_words(second->plan)) << shown(number, scenario) << print(shuffled);
    ++compared;
  }
  fmt::print("{} shuffled schedules gave the same plan\n", compared);
  EXPECT_GT(compared, scenarios() / 10);
}

/// Twice as many replicas on twice the batch; nothing if the schedule has no axis of replicas.
std::optional<Schedule> doubled(Schedule schedule) {
  for (Directive& directive : schedule.directives)
    if (auto* mesh = std::get_if<Mesh>(&directive.body))
      for (MeshAxis& axis : mesh->axes)
        if (axis.name == "edp" && axis.size > 1) {
          axis.size *= 2;
          return schedule;
        }
  return std::nullopt;
}

/// Links that take no time: how long a reduction among more devices takes decides which computations wait for it.
CompileOptions without_times_of_links() {
  CompileOptions options;
  for (LinkLevel& level : options.cluster.levels) level.bandwidth = 1e30, level.latency = 0;
  return options;
}

TEST(Scenarios, NodesDoNotDependOnTheNumberOfReplicas) {
  int compared = 0;
  for (int number = 0; number < scenarios() / 2; ++number) {
    Scenario scenario = scenario_of(number);
    const auto schedule = doubled(*parsed(scenario));
    // experts cut among more devices make smaller buckets
    if (!schedule || scenario.schedule.find("shard({experts=*}, along=[edp") != std::string::npos) continue;
    const CompileOptions options = without_times_of_links();
    auto once = compile(std::make_shared<const ModelGraph>(scenario.model.graph), *parsed(scenario), options);
    scenario.model.graph.step.batch *= 2;
    auto twice = compile(std::make_shared<const ModelGraph>(scenario.model.graph), *schedule, options);
    if (!once || !twice) continue;
    ASSERT_EQ(once->linear.dag.nodes.size(), twice->linear.dag.nodes.size()) << shown(number, scenario);
    ASSERT_EQ(once->linear.dag.edges.size(), twice->linear.dag.edges.size()) << shown(number, scenario);
    ASSERT_EQ(once->plan.templates.size(), twice->plan.templates.size()) << shown(number, scenario);
    ++compared;
  }
  fmt::print("{} schedules with twice the replicas had the same nodes\n", compared);
  EXPECT_GT(compared, scenarios() / 50);
}

}  // namespace
}  // namespace piper::property
