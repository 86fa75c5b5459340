// Runs of a shard's elements lie in the whole parameter where the shard itself was taken from.
#include "runtime/element_runs.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/parameters.h"

namespace piper {
namespace {

ParameterForm form_of(std::vector<int64_t> sizes) {
  ParameterForm out;
  out.factors = sizes;
  out.sizes = std::move(sizes);
  return out;
}

/// Every range of the shard, element by element.
void expect_runs(const ParameterForm& form, const LocalShards& shards) {
  int64_t elements = 1;
  for (const int64_t size : form.sizes) elements *= size;
  const at::Tensor whole = at::arange(elements, at::kLong).view(form.sizes);
  const at::Tensor shard = shard_of(whole, form, shards).reshape({-1}).contiguous();
  const auto* expected = shard.const_data_ptr<int64_t>();
  for (int64_t begin = 0; begin < shard.numel(); begin += 3)
    for (const int64_t count : {int64_t{1}, (shard.numel() - begin) / 2, shard.numel() - begin}) {
      int64_t at = begin;
      for (const ElementRun& run : element_runs(form, shards, {begin, count})) {
        EXPECT_EQ(run.shard, at);
        for (int64_t i = 0; i < run.count; ++i) ASSERT_EQ(expected[run.shard + i], run.whole + i);
        at += run.count;
      }
      EXPECT_EQ(at, begin + count);
    }
}

TEST(ElementRuns, AreWhereTheShardWasTakenFrom) {
  expect_runs(form_of({5, 7}), {});
  for (const size_t factor : {0u, 1u, 2u})
    for (int64_t index = 0; index < 2; ++index) {
      ParameterForm form = form_of({4, 6, 2});
      form.along[ShardKind::Tp] = {factor, factor, {}};
      expect_runs(form, {ShardKind::Tp, {2, index}});
    }
}

TEST(ElementRuns, OfBlocksThatAreEachDivided) {
  for (int64_t index = 0; index < 2; ++index) {
    ParameterForm form = form_of({8, 3});
    form.along[ShardKind::Tp] = {0, 0, {4, 2, 2}};
    expect_runs(form, {ShardKind::Tp, {2, index}});
    form = form_of({3, 8});
    form.along[ShardKind::Tp] = {1, 1, {4, 2, 2}};
    expect_runs(form, {ShardKind::Tp, {2, index}});
  }
}

TEST(ElementRuns, OfExpertsWhoseWidthIsDividedToo) {
  ParameterForm form = form_of({4, 3, 6});
  form.along[ShardKind::Expert] = {0, 0, {}};
  form.along[ShardKind::Tp] = {2, 2, {}};
  for (int64_t expert = 0; expert < 2; ++expert)
    for (int64_t index = 0; index < 3; ++index) {
      LocalShards shards(ShardKind::Expert, {2, expert});
      shards[ShardKind::Tp] = {3, index};
      expect_runs(form, shards);
    }
}

TEST(ElementRuns, OneAlongTheFirstDimensionIsOneRun) {
  ParameterForm form = form_of({8, 16});
  form.along[ShardKind::Tp] = {0, 0, {}};
  EXPECT_EQ(element_runs(form, {ShardKind::Tp, {2, 1}}, {0, 64}), (std::vector<ElementRun>{{64, 0, 64}}));
}

}  // namespace
}  // namespace piper
