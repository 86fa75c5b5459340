// The search finds what looking at every candidate finds, the same each time, and never beyond the memory there is.
#include "search/search.h"

#include <gtest/gtest.h>

#include "cost/load_cluster.h"
#include "model/load_model.h"
#include "must.h"
#include "schedule/load_schedule.h"
#include "schedule/schedule_text.h"
#include "search/answer.h"
#include "search/bound.h"
#include "search/spaces.h"

namespace piper::search_cases {
namespace {

using property::Random;

SearchOptions without_end() {
  SearchOptions options;
  options.budget = 1e9;
  return options;
}

/// All leaves of the space.
std::vector<Candidate> all_candidates(const Problem& problem) {
  Bounds bounds(problem);
  std::vector<Candidate> out;
  for (const Candidate& mesh : meshes(problem.limits))
    for (const Candidate& form : forms(problem.limits, mesh))
      for (Candidate& pipeline : pipelines(problem.limits, form)) {
        if (stages_of(pipeline) > 1)
          if (const auto cuts = bounds.balanced_cuts(pipeline); cuts && !cuts->empty()) {
            Candidate balanced = pipeline;
            balanced.at = *cuts;
            for (Candidate& leaf : replications(problem.limits, balanced)) out.push_back(std::move(leaf));
          }
        for (Candidate& leaf : replications(problem.limits, pipeline)) out.push_back(std::move(leaf));
      }
  return out;
}

class Space : public ::testing::TestWithParam<int> {};

TEST_P(Space, IsSearchedAsIfEverythingWasLookedAt) {
  Random random(1000 + static_cast<uint64_t>(GetParam()));
  Problem problem = random_problem(random);
  problem.limits.fixed.bucket = 100'000'000;
  if (!property::long_run() || all_candidates(problem).size() > 20'000) {
    problem.limits.fixed.microbatches = 2;
    problem.limits.fixed.sequence = problem.limits.fixed.vocabulary = false;
  }
  const std::vector<Candidate> all = all_candidates(problem);
  std::optional<Evaluated> best;
  for (const Candidate& candidate : all)
    if (auto made = evaluate(problem, candidate); made && made->fits && (!best || better(*made, *best))) best = *made;
  const auto found = search(problem, {}, without_end());
  ASSERT_EQ(best.has_value(), found && found->best());
  RecordProperty("points", static_cast<int>(all.size()));
  RecordProperty("simulated", found ? static_cast<int>(found->evaluated.size()) : 0);
  if (!best) return;
  EXPECT_EQ(found->end, SearchEnd::Proved);
  EXPECT_LE(found->best()->report.seconds, best->report.seconds * 1.01) << print(best->schedule);
}
INSTANTIATE_TEST_SUITE_P(Random, Space, ::testing::Range(0, property::long_run() ? 30 : 3));

TEST(Search, TheAnswerDoesNotDependOnThreadsAndFits) {
  for (const uint64_t seed : {7, 8, 9}) {
    Random random(seed);
    Problem problem = random_problem(random);
    problem.limits.fixed.bucket = 100'000'000;
    problem.limits.fixed.microbatches = 4;
    SearchOptions one = without_end();
    one.threads = 1;
    const SearchResult a = must(search(problem, {}, without_end())), b = must(search(problem, {}, one));
    ASSERT_EQ(a.best() != nullptr, b.best() != nullptr);
    if (!a.best()) continue;
    EXPECT_EQ(print(a.best()->schedule), print(b.best()->schedule));
    EXPECT_TRUE(!a.best()->capacity || a.best()->memory.total <= *a.best()->capacity);
    EXPECT_EQ(print(problem, a, {}), print(problem, b, {}));
  }
}

Problem problem_of(const std::string& model, int64_t batch, int64_t sequence, const std::string& cluster, int devices,
                   Fixed fixed = {}, std::optional<int64_t> memory = {}) {
  StepOverrides step;
  step.batch = batch;
  step.sequence = sequence;
  const auto load = [model, step](LayerForm form, TokenForm tokens) -> Result<std::shared_ptr<const ModelGraph>> {
    PIPER_TRY(ModelGraph loaded, load_model(model, step, form, tokens));
    return std::make_shared<const ModelGraph>(std::move(loaded));
  };
  return must(make_problem(load, must(load_cluster(cluster)), {}, devices, memory, std::move(fixed)));
}

/// The user's own schedule wins if nothing that may be searched is faster.
TEST(Search, AScheduleOfTheUsersIsNeverBeatenByAWorseAnswer) {
  Fixed slow;
  slow.timeline = "gpipe";
  slow.size[Axis::Pp] = 4;
  const Problem problem = problem_of(std::string(PIPER_SOURCE_DIR) + "/examples/moe.toml", 32, 2048, "h100", 8, slow);
  const Schedule own = must(load_schedule(std::string(PIPER_SOURCE_DIR) + "/examples/dualpipe.piper"));
  const SearchResult found = must(search(problem, {{"dualpipe.piper", own}}, without_end()));
  ASSERT_TRUE(found.best());
  EXPECT_EQ(found.best()->name, "dualpipe.piper");
}

TEST(Search, WhatNothingFitsIntoHasWaysOut) {
  const Problem problem = problem_of("analytic:Llama-3-8B", 8, 4096, "h100", 1, {}, int64_t{60'000'000'000});
  const SearchResult found = must(search(problem, {}, without_end()));
  ASSERT_FALSE(found.best());
  ASSERT_TRUE(found.smallest);
  const std::vector<WayOut> ways = ways_out(problem, found, without_end());
  ASSERT_FALSE(ways.empty());
  EXPECT_EQ(ways[0].what, "--devices 3");  // 8.03 billion parameters of 18 bytes: 72 GB on each of two, 48 of three
  for (const WayOut& way : ways) EXPECT_EQ(way.evaluated.fits, !way.what.starts_with("--memory")) << way.what;
}

/// Between twice as many devices and too few lie whole nodes; between half of the batch and too much lie batches.
TEST(ThoroughSearch, WaysOutAreNotOnlyPowersOfTwo) {
  Fixed fixed;
  fixed.size[Axis::Tp] = 1;
  fixed.timeline = "1f1b";
  const Problem problem = problem_of("analytic:Llama-3-70B", 48, 4096, "h100", 8, fixed);
  const SearchResult found = must(search(problem, {}, without_end()));
  ASSERT_FALSE(found.best());
  const std::vector<WayOut> ways = ways_out(problem, found, without_end());
  ASSERT_FALSE(ways.empty());
  EXPECT_EQ(ways[0].what, "--devices 24");  // 70.6 billion parameters of 18 bytes: 79 GB on each of 16

  Fixed one;  // one device, one microbatch: activations grow with the batch
  one.timeline = "1f1b";
  one.microbatches = 1;
  one.recompute = "";
  const Problem large = problem_of("analytic:Qwen3-0.6B", 64, 4096, "h100", 1, one);
  const SearchResult none = must(search(large, {}, without_end()));
  ASSERT_FALSE(none.best());
  const std::vector<WayOut> smaller = ways_out(large, none, without_end());
  const auto batch = std::ranges::find_if(smaller, [](const WayOut& way) { return way.what.starts_with("--batch "); });
  ASSERT_NE(batch, smaller.end());
  const int64_t most = std::stoll(batch->what.substr(8));
  const auto fits = [&](int64_t samples) {
    return must(search(with_batch(large, samples), {}, without_end())).best() != nullptr;
  };
  EXPECT_TRUE(fits(most));
  EXPECT_FALSE(fits(most + 1));
}

TEST(Search, AStopGivesTheBestSoFar) {
  const Problem problem = problem_of("analytic:Llama-3-8B", 256, 4096, "h100", 64);
  std::atomic<bool> stop = false;
  SearchOptions options = without_end();
  options.stop = &stop;
  options.progress = [&](const SearchProgress& now) { stop = stop || now.best != nullptr; };
  const SearchResult found = must(search(problem, {}, options));
  EXPECT_EQ(found.end, SearchEnd::Stopped);
  ASSERT_TRUE(found.best());
  EXPECT_LT(found.bound, found.best()->report.seconds);
}

/// What is fixed holds in every schedule, and a directive that a search does not choose is refused.
TEST(Search, FixedChoicesHold) {
  const auto fixed_text = [](const std::string& text) {
    return fixed_by(must(parse_schedule(make_source("--fix", text))));
  };
  const Fixed fixed = must(fixed_text("mesh(pp=2, tp=2)\nreplicate({}, along=dp, zero=2)\nuse 1f1b()"));
  const Problem problem = problem_of(std::string(PIPER_SOURCE_DIR) + "/examples/moe.toml", 32, 2048, "h100", 8, fixed);
  const SearchResult found = must(search(problem, {}, without_end()));
  ASSERT_TRUE(found.best());
  for (const Evaluated& made : found.evaluated) EXPECT_TRUE(allows(fixed, *made.candidate)) << print(made.schedule);
  for (const char* text :
       {"devices(4)", "mesh(sp=2)", "order({layer=0}, {layer=1})", "mesh(pp=2)\nuse gpipe()\nuse 1f1b()"})
    EXPECT_FALSE(fixed_text(text)) << text;
}

/// Whatever a directive says holds in all schedules, or is refused.
TEST(Search, NothingThatIsFixedGoesUnheard) {
  const auto fixed_text = [](const std::string& text) {
    return fixed_by(must(parse_schedule(make_source("--fix", text))));
  };
  const auto why = [&](const std::string& text) {
    const auto fixed = fixed_text(text);
    return fixed ? std::string("fixed") : fixed.error().message;
  };
  EXPECT_EQ(why("shard({}, along=cp, sequence=gather, order=contiguous)"),
            "--fix: a search does not choose order of shard");
  EXPECT_EQ(why("shard({}, along=cp, sequence=ring)"), "--fix: a search does not choose sequence=ring");
  EXPECT_EQ(why("recompute({layer=*, stage=2..3})"),
            "--fix: a search does not choose to recompute {layer=*, stage=2..3}");
  EXPECT_EQ(why("replicate({}, along=dp, gather_stream=mine)"), "--fix: a search does not choose gather_stream=mine");
  EXPECT_EQ(why("replicate({}, along=dp, zero=1, gather_stream=gather)"),
            "--fix: with zero=1 no parameters are gathered beside reductions");
  EXPECT_EQ(why("shard({experts=*}, along=ep, stream=ep)"), "--fix: a search does not choose stream of shard");
  EXPECT_EQ(why("shard({layer=0..3}, along=tp)"), "--fix: a search does not choose to shard {layer=0..3}");
  EXPECT_EQ(why("replicate({}, along=pp, zero=1)"), "--fix: a search does not choose to replicate on other devices");
  EXPECT_EQ(why("replicate({}, along=dp, release=step)"), "--fix: a search does not choose release of replicate");
  EXPECT_EQ(why("place({}, along=pp, stages=4, ranks=[0, 1, 1, 0])"), "--fix: a search does not choose ranks of place");
  EXPECT_EQ(why("split(batch, parts=4, as=part)"), "--fix: a search does not choose as=part");
  EXPECT_EQ(why("prefetch({layer=0}, distance=2)"), "--fix: a search does not choose to prefetch {layer=0}");
  EXPECT_EQ(why("replicate({}, along=dp, zero=1)\nprefetch({comm=gather}, distance=2)"),
            "--fix: with zero=1 no parameters are gathered ahead");
  EXPECT_EQ(why("use list(stages=stage, microbatches=mb, memory_limit=4)"),
            "--fix: a search does not choose memory_limit of use");
  EXPECT_EQ(why("use interleaved_1f1b(stages=stage, microbatches=mb, group=2)"),
            "--fix: a search does not choose group of use");

  const std::string model = std::string(PIPER_SOURCE_DIR) + "/examples/moe.toml";
  const auto space = [&](const std::string& text) {
    return check_space(problem_of(model, 32, 2048, "h100", 8, must(fixed_text(text))).limits);
  };
  EXPECT_EQ(space("shard({attention=*}, along=ep)").error().message,
            "--fix: a search does not choose to divide {attention=*}");
  EXPECT_EQ(space("shard({}, along=cp, sequence=gather)").error().message,
            "--fix: the model's tokens cannot be divided");  // it has experts
  EXPECT_EQ(space("mesh(cp=2, ep=2)").error().message, "--fix: tokens and experts are not divided together");
  EXPECT_EQ(space("place({}, along=pp, stages=3, at=[4, 2])").error().message,
            "--fix: cuts at 4, 2 do not lie in order between the 16 layers");
  EXPECT_EQ(space("place({}, along=pp, stages=4, at=[2, 4])").error().message, "--fix: 2 cuts do not make 4 stages");
  // two directives of an answer
  const std::string all = "shard({experts=*}, along=ep)\nplace({}, along=pp, stages=4, at=[5, 9, 13], shape=v)\n";
  const Problem problem = problem_of(model, 32, 2048, "h100", 8, must(fixed_text(all)));
  const SearchResult found = must(search(problem, {}, without_end()));
  ASSERT_TRUE(found.best());
  for (const Evaluated& made : found.evaluated) {
    EXPECT_GT(made.candidate->ep, 1);
    EXPECT_NE(print(made.schedule).find("stages=4, at=[5, 9, 13], shape=v"), std::string::npos);
  }
}

/// A schedule of the user's is compiled for the model that it needs, also where a search has no such schedules.
TEST(Search, TriedSchedulesMayDivideContext) {
  Fixed few;
  few.size = {{1, 8, 1, 1, 1}};
  const Problem problem = problem_of("analytic:Llama-3-8B", 8, 8192, "h100", 8, few);
  const Schedule context = must(parse_schedule(make_source("cp.piper", R"(
    mesh(dp=2, cp=4)
    split(batch, parts=1, as=mb)
    place({}, mesh={})
    replicate({}, along=[dp, cp], zero=3)
    shard({}, along=cp, sequence=gather))")));
  const SearchResult found = must(search(problem, {{"cp.piper", context}}, without_end()));
  EXPECT_TRUE(std::ranges::any_of(found.evaluated, [](const Evaluated& made) { return made.name == "cp.piper"; }));
}

/// The choices that a search makes last are fixed like all others, and an answer that is read back is the answer.
TEST(Search, EveryChoiceCanBeFixed) {
  for (const char* text :
       {"mesh(pp=2, cp=4)\nshard({}, along=cp, sequence=heads)", "mesh(pp=4)\nrecompute({layer=*, stage=0..1})",
        "mesh(pp=1)\nreplicate({}, along=dp, zero=3, gather_stream=gather)",
        "mesh(pp=4)\nsplit(batch, parts=8)\nuse list()",
        "mesh(cp=2, tp=2)\nshard({}, along=cp, sequence=gather, regather=on)"}) {
    SCOPED_TRACE(text);
    const Fixed fixed = must(fixed_by(must(parse_schedule(make_source("--fix", text)))));
    const Problem problem = problem_of("analytic:Qwen3-0.6B", 16, 8192, "h100", 8, fixed);
    ASSERT_TRUE(check_space(problem.limits));
    SearchOptions first = without_end();
    first.first = true;
    const SearchResult found = must(search(problem, {}, first));
    ASSERT_TRUE(found.best());
    for (const Evaluated& made : found.evaluated) EXPECT_TRUE(allows(fixed, *made.candidate)) << print(made.schedule);
    const Schedule again = must(parse_schedule(make_source("best", explained(problem, *found.best()))));
    const Evaluated made = must(evaluate(problem, "best", again));
    EXPECT_EQ(made.report.seconds, found.best()->report.seconds) << print(again);
    EXPECT_EQ(made.memory.total, found.best()->memory.total);
  }
}

/// The budget counts work, so that it ends a search at the same place in every run, whatever the threads.
TEST(Search, ABudgetEndsAtTheSamePlace) {
  const Problem problem = problem_of("analytic:Llama-3-8B", 256, 4096, "h100", 64);
  const auto with_threads = [&](int threads) {
    SearchOptions options;
    options.budget = 0.5;
    options.threads = threads;
    return must(search(problem, {}, options));
  };
  const SearchResult one = with_threads(1), two = with_threads(2), again = with_threads(2);
  EXPECT_EQ(one.end, SearchEnd::Budget);
  EXPECT_GE(one.work, 0.5 * 0.85);  // the rest is for the other ideas
  EXPECT_EQ(print_json(problem, one, {}), print_json(problem, two, {}));
  EXPECT_EQ(print_json(problem, one, {}), print_json(problem, again, {}));
  SearchOptions hurried;
  hurried.time = 0;
  const SearchResult late = must(search(problem, {}, hurried));
  EXPECT_EQ(late.end, SearchEnd::Time);
  EXPECT_FALSE(late.best());
}

TEST(Search, SpacesWithoutCandidatesSayWhy) {
  const auto why = [](int devices, int64_t batch, const Fixed& fixed) {
    const Problem problem = problem_of("analytic:Llama-3-8B", batch, 4096, "h100", devices, fixed);
    if (const auto checked = check_space(problem.limits); !checked) return checked.error().message;
    SearchOptions first = without_end();
    first.first = true;
    const auto found = search(problem, {}, first);
    return found ? std::string() : found.error().message;
  };
  Fixed experts, large, odd, narrow, tokens;
  experts.size[Axis::Ep] = 4;
  large.size[Axis::Pp] = 64;
  odd.size[Axis::Dp] = 3;
  narrow.size[Axis::Tp] = 64;
  tokens.size[Axis::Cp] = 3;
  EXPECT_EQ(why(8, 64, {}), "");
  EXPECT_EQ(why(37, 64, {}), "no way to lay out 37 devices divides a batch of 64 evenly");
  EXPECT_EQ(why(8, 64, experts), "--fix: ep=4 divides experts, and the model has none that can be divided");
  EXPECT_EQ(why(64, 64, large), "--fix: pp=64 needs at least as many layers; the model has 32");
  EXPECT_EQ(
      why(64, 64, narrow),
      "shard: parameter layer.0.attention.q.weight [tp=32, 128, 4096] of chunk layer.0.attention.qkv does not divide "
      "among 64 devices");
  EXPECT_EQ(why(3, 64, tokens),
            "shard: value embed.out [b, sequence=4096, 4096] of chunk embed does not fall into 6 blocks, two for each "
            "device");
  EXPECT_EQ(why(8, 64, odd), "--fix: axes of 3 devices do not make up 8 devices");
}

}  // namespace
}  // namespace piper::search_cases
