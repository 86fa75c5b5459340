// Where layers or devices differ, stages of equal numbers of layers are not the answer.
#include <gtest/gtest.h>

#include "cost/load_cluster.h"
#include "must.h"
#include "schedule/schedule_text.h"
#include "search/search.h"
#include "search/spaces.h"

namespace piper::search_cases {
namespace {

ModelConfig decoder(Architecture arch, int64_t layers, int64_t vocab) {
  ModelConfig config = usual_config(arch);
  config.name = "decoder";
  config.hidden = 512;
  config.heads = 8;
  config.ffn = 2048;
  config.layers = layers;
  config.vocab = vocab;
  config.seq = 512;
  complete(config);
  return config;
}

Fixed one_stage_per_rank(int ranks) {
  Fixed out;
  out.size[Axis::Pp] = ranks;
  out.size[Axis::Tp] = 1;
  out.timeline = "1f1b";
  out.microbatches = 8;
  return out;
}

/// The first layers of all stages but the first in the answer, which is faster than the same schedule with even stages.
std::vector<int> cuts_of_the_answer(const Problem& problem) {
  SearchOptions options;
  options.budget = 1e9;
  const SearchResult found = must(search(problem, {}, options));
  if (!found.best()) return {};
  Candidate even = *found.best()->candidate;
  even.at.clear();
  EXPECT_LT(found.best()->report.seconds, 0.95 * must(evaluate(problem, even)).report.seconds)
      << print(found.best()->schedule);
  return found.best()->candidate->at;
}

TEST(Uneven, TheStageWithAHeavyHeadHasFewerLayers) {
  const Problem problem =
      problem_for(decoder(Architecture::Llama3, 16, 50'000), 32, must(load_cluster("h100")), 4, one_stage_per_rank(4));
  const std::vector<int> at = cuts_of_the_answer(problem);
  ASSERT_EQ(at.size(), 3u);
  EXPECT_GT(at[2], 12);
}

TEST(Uneven, HeavyFirstLayersAreSpreadOverMoreStages) {
  ModelConfig config = decoder(Architecture::DeepSeekV3, 12, 512);
  config.ffn = 0;
  config.kv_lora_rank = 128;
  config.qk_nope_head_dim = config.v_head_dim = 64;
  config.qk_rope_head_dim = 32;
  config.dense_layers = 4;
  config.dense_ffn = 16'384;
  config.experts = 8;
  config.top_k = 2;
  config.moe_ffn = 512;
  config.shared_experts = 1;
  Fixed fixed = one_stage_per_rank(4);
  fixed.size[Axis::Ep] = 1;
  const std::vector<int> at = cuts_of_the_answer(problem_for(config, 32, must(load_cluster("h100")), 4, fixed));
  ASSERT_EQ(at.size(), 3u);
  EXPECT_LT(at[0], 3);
}

TEST(Uneven, SlowNodesGetFewerLayers) {
  const Cluster cluster = with_slow_nodes(in_small_nodes(must(load_cluster("h100"))), 0.4);
  const Problem problem = problem_for(decoder(Architecture::Llama3, 16, 512), 32, cluster, 4, one_stage_per_rank(2));
  const std::vector<int> at = cuts_of_the_answer(problem);
  ASSERT_EQ(at.size(), 1u);
  EXPECT_GT(at[0], 9);
}

}  // namespace
}  // namespace piper::search_cases
