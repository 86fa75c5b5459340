// Context parallelism: tokens divided among devices, alone and together with everything else, equal one device; every
// collective that was put in is needed, and moves as much as the formulas say.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "every.h"
#include "train_loop/tp_cases.h"
#include "train_loop/wrappers.h"

namespace piper {
namespace {

const std::string context = "shard({}, along=cp, sequence=gather)\n";
const std::string context_regather = "shard({}, along=cp, sequence=gather, regather=on)\n";
const std::string contiguous = "shard({}, along=cp, sequence=gather, order=contiguous)\n";
const std::string heads = "shard({}, along=cp, sequence=heads)\n";
const std::string contiguous_heads = "shard({}, along=cp, sequence=heads, order=contiguous)\n";

std::vector<TpCase> context_cases() {
  std::vector<TpCase> out;
  const auto along = [](const std::string& axes, int zero = 0) {
    return fmt::format("replicate({{}}, along={}, zero={}, bucket=1KB)\n", axes, zero);
  };
  for (const std::string model : {"reference", "grouped", "one_key", "four_keys", "normed_keys", "dropout"})
    out.push_back({model + "_cp2", model, 2, 4, "mesh(cp=2)\n" + whole + along("cp") + context});
  for (const std::string model : {"reference", "one_key"})
    out.push_back({model + "_cp4", model, 4, 4, "mesh(cp=4)\n" + whole + along("cp") + context_regather});
  for (const std::string model : {"reference", "dropout"})
    out.push_back({model + "_contiguous", model, 4, 4, "mesh(cp=4)\n" + whole + along("cp") + contiguous});
  for (const std::string model : {"reference", "grouped", "one_key", "normed_keys", "dropout"})
    out.push_back({model + "_heads_cp2", model, 2, 4, "mesh(cp=2)\n" + whole + along("cp") + heads});
  for (const std::string model : {"reference", "one_key", "four_keys", "normed_keys"})
    out.push_back({model + "_heads_cp4", model, 4, 4, "mesh(cp=4)\n" + whole + along("cp") + heads});
  for (const std::string model : {"grouped", "dropout"})
    out.push_back({model + "_heads_contiguous", model, 4, 4, "mesh(cp=4)\n" + whole + along("cp") + contiguous_heads});
  for (const int zero : {1, 2, 3})
    out.push_back({fmt::format("heads_dp2_zero{}", zero), zero % 2 == 0 ? "normed_keys" : "one_key", 4, 8,
                   "mesh(dp=2, cp=2)\n" + whole + along("[dp, cp]", zero) + (zero == 2 ? contiguous_heads : heads)});
  for (const int zero : {0, 1, 2, 3})
    out.push_back({fmt::format("dp2_zero{}", zero), zero % 2 == 0 ? "normed_keys" : "one_key", 4, 8,
                   "mesh(dp=2, cp=2)\n" + whole + along("[dp, cp]", zero) +
                       (zero == 0   ? context
                        : zero == 2 ? contiguous
                                    : context_regather)});
  const auto piped = [&](const std::string& model, const std::string& timeline, const std::string& more = "",
                         const std::string& shard = context) {
    const bool v = timeline == "dualpipev" || timeline == "zb-v";
    std::string name = timeline;
    std::replace(name.begin(), name.end(), '-', '_');
    out.push_back(
        {fmt::format("{}_{}{}{}", model, name, more.empty() ? "" : "_more", shard == context ? "" : "_heads"), model, 4,
         4,
         fmt::format("mesh(pp=2, cp=2)\nplace({{}}, along=pp, stages={}{})\n", v ? 4 : 2, v ? ", shape=v" : "") +
             along("cp") + shard + more + fmt::format("use {}(stages=stage, microbatches=mb)\n", timeline)});
  };
  piped("reference", "1f1b");
  piped("one_key", "1f1b", "recompute({layer=*})\n");
  piped("normed_keys", "zb-h1");
  piped("dropout", "zb-v");
  piped("grouped", "dualpipev");
  piped("dropout", "gpipe", "recompute({layer=*})\n");
  piped("reference", "1f1b", "", heads);
  piped("one_key", "1f1b", "recompute({layer=*})\n", heads);
  piped("normed_keys", "zb-h1", "", heads);
  piped("dropout", "zb-v", "recompute({layer=*})\n", heads);
  piped("grouped", "dualpipev", "", heads);
  for (const std::string& shard : {context, heads})
    out.push_back({shard == heads ? "three_dimensions_heads" : "three_dimensions", "one_key", 8, 8,
                   "mesh(pp=2, dp=2, cp=2)\nplace({}, along=pp, stages=2)\n" + along("[dp, cp]", 3) + shard +
                       "use 1f1b(stages=stage, microbatches=mb)\n"});
  out.push_back({"one_sample", "grouped", 2, 16, "mesh(cp=2)\n" + whole + along("cp") + context, 16});
  out.push_back({"one_sample_heads", "grouped", 2, 16, "mesh(cp=2)\n" + whole + along("cp") + heads, 16});
  for (const std::string& shard : {context, heads})
    out.push_back({shard == heads ? "groups_of_two_sizes_heads" : "groups_of_two_sizes", "reference", 4, 4,
                   "mesh(dp=2, cp=2)\nplace({embed=*}, mesh={})\nplace({layer=0..1}, mesh={})\n"
                   "place({layer=2..3}, mesh={dp=0})\nplace({head=*}, mesh={dp=0})\n"
                   "replicate({embed=*}, along=[dp, cp])\nreplicate({layer=0..1}, along=[dp, cp])\n"
                   "replicate({layer=2..3}, along=cp)\nreplicate({head=*}, along=cp)\n" +
                       shard});
  out.push_back(
      {"float32", "grouped", 4, 8, "mesh(dp=2, cp=2)\n" + whole + along("[dp, cp]", 2) + context, 4, DType::Float32});
  out.push_back({"float32_heads", "grouped", 4, 8, "mesh(dp=2, cp=2)\n" + whole + along("[dp, cp]", 2) + heads, 4,
                 DType::Float32});
  for (TpCase& c : out) c.tokens = 8;
  return out;
}

class Context : public testing::TestWithParam<TpCase> {};

TEST_P(Context, EqualsOneDevice) {
  const TpCase& c = GetParam();
  SCOPED_TRACE(c.text());
  const TrainableModel model = model_of(c);
  const auto trained = [&](const std::string& schedule) { return train(model, schedule, settings(c)); };
  const Trained run = trained(c.text());
  EXPECT_EQ(run.devices, c.devices);
  const double tolerance = c.dtype == DType::Float64 ? 1e-12 : 1e-5;
  const std::string alone = fmt::format("mesh(cp=1)\nsplit(batch, parts={}, as=mb)\n", c.slices) + whole +
                            "replicate({}, along=cp)\n" + context;
  EXPECT_THAT(complaints(run, trained(alone), tolerance), testing::IsEmpty());
  EXPECT_THAT(complaints(run, trained(in_turn(c.slices)), tolerance), testing::IsEmpty());
  for (size_t d = 0; d < run.peak_bytes.size(); ++d) EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << d;
}
INSTANTIATE_TEST_SUITE_P(Some, Context, testing::ValuesIn(every(3, context_cases())),
                         [](const testing::TestParamInfo<TpCase>& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Thorough, Context, testing::ValuesIn(context_cases()),
                         [](const testing::TestParamInfo<TpCase>& info) { return info.param.name; });

std::vector<CommunicationId> along_tokens(const Plan& plan) {
  PartitionId among;
  for (const PlanWork& work : plan.works) among = std::max(among, work.shards[ShardKind::Context]);
  std::vector<CommunicationId> out;
  for (const CommunicationId c : plan.communications.ids())
    if (!plan.communications[c].transfer && plan.communications[c].over == among) out.push_back(c);
  return out;
}

/// Each rank gets (parts - 1) / parts of the keys and values of all tokens in forward, and the same of their gradients
/// in backward.
TEST(ContextVolume, IsThatOfKeysAndValues) {
  const TpCase c{"", "grouped",      4, 1, "mesh(cp=4)\n" + whole + "replicate({}, along=cp)\n" + context,
                 1,  DType::Float64, 8};
  const PreparedTraining training = prepared(model_of(c), c.text());
  constexpr int64_t tokens = 8, keys = 2, width = 4, layers = 4, bytes = 8;
  int64_t gathered = 0, scattered = 0;
  for (const PlannedOp& op : training.plan->templates.front().ops) {
    if (!op.communication.valid() || op.writes.empty()) continue;
    if (training.plan->templates.front().buffers[op.writes[0]].category != Category::Activations) continue;
    const int64_t moved = training.plan->communications[op.communication].bytes;
    if (op.kind == OpKind::AllGather) gathered += moved;
    if (op.kind == OpKind::ReduceScatter) scattered += moved;
  }
  EXPECT_EQ(gathered, 2 * tokens * tp_batch * keys * width * bytes * layers);
  EXPECT_EQ(scattered, gathered);
}

/// Of all tokens each rank gets (parts - 1) / parts of its part of the heads, in forward of queries, keys, values and
/// results, in backward of their gradients; every key is there once for each rank.
TEST(ContextVolume, IsThatOfHeads) {
  for (const auto& [model, keys] : {std::pair<std::string, int64_t>{"one_key", 1}, {"grouped", 2}, {"four_keys", 4}}) {
    constexpr int64_t parts = 4, tokens = 8, queries = 4, width = 4, layers = 4, bytes = 8;
    const TpCase c{"", model, 4, 1, "mesh(cp=4)\n" + whole + "replicate({}, along=cp)\n" + heads, 1, DType::Float64, 8};
    const PreparedTraining training = prepared(model_of(c), c.text());
    std::map<Pass, int64_t> moved;
    for (const PlannedOp& op : training.plan->templates.front().ops)
      if (op.kind == OpKind::AllToAll) moved[*op.label.pass] += training.plan->communications[op.communication].bytes;
    const int64_t each = (2 * queries + 2 * std::max(keys, parts)) * tokens * tp_batch * width * bytes * layers / parts;
    EXPECT_THAT(moved, testing::ElementsAre(testing::Pair(Pass::F, each), testing::Pair(Pass::B, each))) << model;
  }
}

/// Of four blocks in the order of the tokens, the last device looks at seven times as many keys as the first: 1.75
/// times the mean.
TEST(ContextBalance, OfCausalAttention) {
  const auto flops = [](const std::string& shard) {
    const TpCase c{"", "grouped",      4, 1, "mesh(cp=4)\n" + whole + "replicate({}, along=cp)\n" + shard,
                   1,  DType::Float64, 8};
    const PreparedTraining training = prepared(model_of(c), c.text());
    const Plan& plan = *training.plan;
    std::vector<int64_t> out;
    for (const TemplateId t : template_of_device(plan))
      for (const PlannedOp& op : plan.templates[t].ops)
        if (op.kind == OpKind::Run && op.label.pass == Pass::F && plan.names[op.label.name].ends_with("core.0")) {
          out.push_back(plan.works[op.work].does.flops);
          break;
        }
    return out;
  };
  const std::vector<int64_t> even = flops(context), uneven = flops(contiguous);
  EXPECT_EQ(flops(contiguous_heads), even);
  ASSERT_GT(even.at(0), 0);
  EXPECT_THAT(even, testing::ElementsAre(even[0], even[0], even[0], even[0]));
  ASSERT_EQ(uneven.size(), 4u);
  for (size_t r = 0; r < 4; ++r) EXPECT_EQ(uneven[r], even[0] * static_cast<int64_t>(2 * r + 1) / 4) << r;
}

class ContextCollectives : public testing::TestWithParam<std::string> {};

TEST_P(ContextCollectives, AreAllNeeded) {
  const TpCase c{"", "normed_keys", 2, 1, "mesh(cp=2)\n" + whole + "replicate({}, along=cp)\n" + GetParam(), 1};
  const TrainableModel model = model_of(c);
  const PreparedTraining training = prepared(model, c.text());
  TrainSettings once = settings(c);
  once.steps = 1;
  const Trained expected = train(model, in_turn(1), once);
  EXPECT_THAT(complaints(train(model, *training.captured, training.plan, once), expected, 1e-12), testing::IsEmpty());
  const std::vector<CommunicationId> all = along_tokens(*training.plan);
  EXPECT_GE(all.size(), 16u);
  for (const CommunicationId left_out : all) {
    TrainSettings faulty = once;
    faulty.communicator = [&](std::unique_ptr<Communicator> to) {
      return std::make_unique<LeavesOut>(std::move(to), left_out.value);
    };
    EXPECT_GT(compare(train(model, *training.captured, training.plan, faulty), expected).error, 1e-6)
        << training.plan->names[training.plan->communications[left_out].label.name];
  }
}

INSTANTIATE_TEST_SUITE_P(All, ContextCollectives, testing::Values(context, heads),
                         [](const auto& info) { return info.param == heads ? "Heads" : "Gather"; });

std::string refusal(const std::string& model, int devices = 2, const std::string& shard = context) {
  const TpCase c{"",
                 model,
                 devices,
                 1,
                 fmt::format("mesh(cp={})\n", devices) + whole + "replicate({}, along=cp)\n" + shard,
                 1,
                 DType::Float64,
                 24};
  try {
    prepared(model_of(c), c.text());
  } catch (const std::runtime_error& refused) {
    return std::string(refused.what());
  }
  return std::string("accepted");
}

TEST(ContextRefuses, HeadsThatDoNotDivide) {
  EXPECT_THAT(refusal("grouped", 8, heads),
              testing::HasSubstr("attention with 4 heads of queries and 2 of keys does not divide among 8 devices"));
  EXPECT_THAT(refusal("four_keys", 3, heads), testing::HasSubstr("4 of keys does not divide among 3 devices"));
  EXPECT_EQ(refusal("one_key", 4, heads), "accepted");
}

TEST(ContextRefuses, WhatMixesTokens) {
  EXPECT_THAT(refusal("biased"), testing::HasSubstr("_softmax along tokens"));
  EXPECT_THAT(refusal("dropped_scores"), testing::HasSubstr("E317"));
  EXPECT_THAT(refusal("mixture"), testing::HasSubstr("E317"));
}

}  // namespace
}  // namespace piper
