// Simulated steps as traces: what the trace says is alive is what the plan's proof counts.
#include "sim/as_trace.h"

#include <gtest/gtest.h>

#include <map>

#include "compiled_examples.h"
#include "plan/memory_report.h"
#include "trace/chrome.h"
#include "trace/summary.h"

namespace piper {
namespace {

class AsTrace : public ::testing::TestWithParam<examples::Example> {
 protected:
  void SetUp() override {
    auto compiled = examples::compile(GetParam());
    ASSERT_TRUE(compiled) << render(compiled.error());
    plan_ = compiled->plan;
    auto simulation = simulate(plan_, cluster_);
    ASSERT_TRUE(simulation) << render(simulation.error());
    trace_ = as_trace(plan_, cluster_, *simulation);
    plan_of_ = simulation->plan_of;
  }

  Plan plan_;
  Cluster cluster_;
  Trace trace_;
  Table<sim::LaneId, TemplateId> plan_of_;
};

TEST_P(AsTrace, BuffersAliveAreTheBytesOfEverySample) {
  ASSERT_FALSE(trace_.buffers.empty());
  for (const TraceMemory& memory : trace_.memory) {
    std::vector<int64_t> bytes(trace_.categories.size(), 0);
    for (const TraceBuffer& buffer : trace_.buffers)
      if (buffer.lane == memory.lane && buffer.alive_at(memory.op))
        bytes[static_cast<size_t>(buffer.category)] += buffer.bytes;
    ASSERT_EQ(bytes, memory.bytes) << "lane " << memory.lane << " at operation " << memory.op;
  }
}

/// By name and category, without pass and slice, as the program's table of memory has them.
TEST_P(AsTrace, OwnersAtThePeakAreTheReports) {
  const TraceSummary summary = summarize(trace_)[0];
  for (int lane = 0; static_cast<size_t>(lane) < trace_.lanes.size(); ++lane) {
    const size_t at = static_cast<size_t>(lane);
    const MemoryPeak peak = memory_peak(plan_, plan_.templates[plan_of_[sim::LaneId(lane)]]);
    EXPECT_EQ(summary.lanes[at].peak_bytes, peak.total);
    std::map<std::string, int64_t> owners;
    for (const TraceBuffer& buffer : trace_.buffers)
      if (buffer.lane == lane && buffer.alive_at(peak.op.value))
        owners[trace_.categories[static_cast<size_t>(buffer.category)] + " " +
               buffer.name.substr(0, buffer.name.find(' '))] += buffer.bytes;
    for (const MemoryOwner& owner : peak.largest) EXPECT_EQ(owners[owner.name], owner.bytes) << owner.name;
  }
}

TEST_P(AsTrace, IsReadBack) {
  auto again = parse_chrome(make_source("t", print_chrome(trace_)));
  ASSERT_TRUE(again) << render(again.error());
  EXPECT_EQ(*again, trace_);
}

INSTANTIATE_TEST_SUITE_P(Examples, AsTrace, ::testing::ValuesIn(examples::all()), examples::name_of);

}  // namespace
}  // namespace piper
