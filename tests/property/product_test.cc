// The full product: every timeline of the library x data parallel degree x ZeRO level x expert parallelism x
// recomputation compiles to verified plans that follow the timeline; a covering part of it also computes the right
// step.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/timeline_of.h"
#include "compiled_examples.h"
#include "property/symbolic_step.h"
#include "timelines/library.h"

namespace piper::property {
namespace {

constexpr int ranks = 4, microbatches = 8;

/// One point of the product.
struct Combination {
  int dp = 1, ep = 1, zero = 0;
  bool recompute = false;
};

std::vector<Combination> all_combinations() {
  std::vector<Combination> out;
  for (const int dp : {1, 2})
    for (const int ep : {1, 2})
      for (int zero = 0; zero <= 3; ++zero)
        for (const bool recompute : {false, true}) out.push_back({dp, ep, zero, recompute});
  return out;
}

std::string schedule_text(const TimelineInfo& info, const Combination& c) {
  const std::string shape = info.placement == StagePlacement::V        ? ", shape=v"
                            : info.placement == StagePlacement::TwoWay ? ", shape=two_way"
                                                                       : "";
  return fmt::format(
      "mesh(pp={}, dp={}, ep={})\nsplit(batch, parts={}, as=mb)\nplace({{}}, along=pp, stages={}{})\n"
      "replicate({{}}, along=[dp, ep], zero={}, bucket=8KB)\n{}{}use {}(stages=stage, microbatches=mb)\n",
      ranks, c.dp, c.ep, microbatches, stage_count(info.placement, ranks, info.default_stages_per_rank), shape, c.zero,
      c.ep > 1 ? "shard({experts=*}, along=ep)\n" : "", c.recompute ? "recompute({layer=*})\n" : "", info.name);
}

std::shared_ptr<const ModelGraph> small_model() {
  std::string text = examples::model_text(2 * ranks);
  const std::string batch = "batch=16 ";
  text.replace(text.find(batch), batch.size(), "batch=32 ");
  auto parsed = parse_model(make_source("small", text));
  if (!parsed) throw std::runtime_error(render(parsed.error()));
  return std::make_shared<const ModelGraph>(*std::move(parsed));
}

/// What every rank runs, by the compiled order.
Timeline compiled_timeline(const Compiled& compiled, const Combination& c) {
  Timeline out;
  out.ranks.resize(ranks);
  for (const TimedRow& row : timed_rows(compiled.linear)) {
    std::vector<TimelineCell> cells;
    for (const TimedCell& cell : row.cells) cells.push_back(cell.cell);
    for (const int device : row.devices) {
      auto& rank = out.ranks[static_cast<size_t>(device / (c.dp * c.ep))];
      if (rank.empty()) rank = cells;
      EXPECT_EQ(rank, cells) << "devices of one rank differ";
    }
  }
  return out;
}

class Product : public testing::TestWithParam<size_t> {};

TEST_P(Product, FollowsTheTimelineAndComputesTheRightStep) {
  const TimelineInfo& info = timeline_library()[GetParam()];
  const auto model = small_model();
  const auto timeline = make_timeline(info.name, {.ranks = ranks, .microbatches = microbatches}, {});
  ASSERT_TRUE(timeline);
  for (const Combination& combination : all_combinations()) {
    const std::string text = schedule_text(info, combination);
    SCOPED_TRACE(text);
    const auto schedule = parse_schedule(make_source("schedule", text));
    ASSERT_TRUE(schedule);
    auto compiled = piper::compile(model, *schedule);
    ASSERT_TRUE(compiled) << render(compiled.error());
    if (!info.takes_placement) {  // whose order depends on the costs of the stages
      EXPECT_EQ(compiled_timeline(*compiled, combination), *timeline);
    }
    EXPECT_THAT(run_symbolically(compiled->linear, compiled->plan), testing::IsEmpty());
  }
}

std::string title(const testing::TestParamInfo<size_t>& info) {
  std::string out;
  for (const char c : timeline_library()[info.param].name) out += c == '-' ? '_' : c;
  return out;
}
INSTANTIATE_TEST_SUITE_P(Library, Product, testing::Range(size_t{0}, timeline_library().size()), title);

}  // namespace
}  // namespace piper::property
