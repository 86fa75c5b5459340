// Tensor parallelism: parameters cut among devices that share samples, alone and together with everything else, equal
// one device; every sum that was put in is needed.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "every.h"
#include "train_loop/tp_cases.h"
#include "train_loop/wrappers.h"

namespace piper {
namespace {

std::vector<TpCase> tp_cases() {
  std::vector<TpCase> out;
  for (const auto& [model, config] : tp_models())
    if (model != "routed")  // one second moment differs by 1.2e-12, and it is not shown to be rounding: router_test.cc
      out.push_back({model + "_tp2", model, 2, 4, "mesh(tp=2)\n" + whole + tensor_parallel});
  for (const std::string model : {"reference", "four_keys", "one_key", "reference_mixture"})
    out.push_back({model + "_tp4", model, 4, 4, "mesh(tp=4)\n" + whole + tensor_parallel});
  for (const int zero : {0, 1, 2, 3})
    for (const std::string model : {"normed_keys", "one_key"})
      out.push_back({fmt::format("{}_dp2_zero{}", model, zero), model, 4, 8,
                     "mesh(dp=2, tp=2)\n" + whole +
                         fmt::format("replicate({{}}, along=dp, zero={}, bucket=1KB)\n", zero) + tensor_parallel});
  const auto piped = [&](const std::string& model, const std::string& timeline, const std::string& more = "") {
    const bool v = timeline == "dualpipev" || timeline == "zb-v";
    std::string name = timeline;
    std::replace(name.begin(), name.end(), '-', '_');
    out.push_back(
        {fmt::format("{}_{}{}", model, name, more.empty() ? "" : "_more"), model, 4, 4,
         fmt::format("mesh(pp=2, tp=2)\nplace({{}}, along=pp, stages={}{})\n", v ? 4 : 2, v ? ", shape=v" : "") +
             tensor_parallel + more + fmt::format("use {}(stages=stage, microbatches=mb)\n", timeline)});
  };
  piped("reference", "1f1b");
  piped("biased", "zb-h1");
  piped("one_key", "1f1b", "recompute({layer=*})\n");
  piped("normed_keys", "zb-h1");
  piped("dropout", "zb-v");
  piped("grouped", "dualpipev");
  piped("dropout", "gpipe", "recompute({layer=*})\n");
  out.push_back({"three_dimensions", "one_key", 8, 8,
                 "mesh(pp=2, dp=2, tp=2)\nplace({}, along=pp, stages=2)\n"
                 "replicate({}, along=dp, zero=3, bucket=1KB)\n" +
                     tensor_parallel + "use 1f1b(stages=stage, microbatches=mb)\n"});
  for (const std::string model : {"reference_mixture", "mixture"})
    out.push_back({model + "_experts", model, 4, 8,
                   "mesh(ep=2, tp=2)\n" + whole + "replicate({}, along=ep, zero=1)\nshard({experts=*}, along=ep)\n" +
                       tensor_parallel});
  // one sample in every slice; and in those of one group, four in those of another
  for (const std::string model : {"grouped", "normed_keys"})
    out.push_back({model + "_one_sample", model, 2, 16, "mesh(tp=2)\n" + whole + tensor_parallel, 16});
  out.push_back({"one_sample_and_four", "reference", 8, 4,
                 "mesh(dp=4, tp=2)\nplace({embed=*}, mesh={})\nplace({layer=0..1}, mesh={})\n"
                 "place({layer=2..3}, mesh={dp=0})\nplace({head=*}, mesh={dp=0})\n"
                 "replicate({embed=*}, along=dp)\nreplicate({layer=0..1}, along=dp)\n" +
                     tensor_parallel});
  out.push_back({"float32", "grouped", 4, 8,
                 "mesh(dp=2, tp=2)\n" + whole + "replicate({}, along=dp, zero=2)\n" + tensor_parallel, 4,
                 DType::Float32});
  return out;
}

/// The same with these cuts, in turn.
std::vector<TpCase> tp_cases_with(const std::vector<std::string>& cuts) {
  std::vector<TpCase> out;
  for (TpCase c : tp_cases()) {
    const size_t at = c.schedule.find(tensor_parallel);
    c.schedule.replace(at, tensor_parallel.size(), cuts[out.size() % cuts.size()]);
    out.push_back(std::move(c));
  }
  return out;
}

const std::vector<std::string> forms_in_turn = {tensor_parallel, sequence, vocabulary, regather, everything};

std::string tp_case_name(const testing::TestParamInfo<TpCase>& info) {
  return info.param.name;
}

class TpModels : public testing::TestWithParam<TpCase> {};

TEST_P(TpModels, EqualOneDevice) {
  expect_equal_to_one_device(GetParam());
}
INSTANTIATE_TEST_SUITE_P(InTurn, TpModels, testing::ValuesIn(every(3, tp_cases_with(forms_in_turn))), tp_case_name);
// and more of them
INSTANTIATE_TEST_SUITE_P(ThoroughInTurn, TpModels, testing::ValuesIn(tp_cases_with(forms_in_turn)), tp_case_name);
INSTANTIATE_TEST_SUITE_P(Long, TpModels, testing::ValuesIn(tp_cases()), tp_case_name);
INSTANTIATE_TEST_SUITE_P(LongSequence, TpModels, testing::ValuesIn(tp_cases_with({sequence, regather})), tp_case_name);
INSTANTIATE_TEST_SUITE_P(LongVocabulary, TpModels, testing::ValuesIn(tp_cases_with({vocabulary, everything})),
                         tp_case_name);

/// Collectives of a plan among the tensor-parallel devices.
std::vector<CommunicationId> sums_of(const Plan& plan) {
  PartitionId among;
  for (const PlanWork& work : plan.works)
    among = std::max({among, work.shards[ShardKind::Tp], work.shards[ShardKind::Sequence]});
  std::vector<CommunicationId> out;
  for (const CommunicationId c : plan.communications.ids())
    if (!plan.communications[c].transfer && plan.communications[c].over == among) out.push_back(c);
  return out;
}

/// Two in forward and two in backward of every layer, each of batch x sequence x hidden numbers: Megatron's count.
TEST(TpSums, AreAsManyAsMegatronHas) {
  for (const std::string model : {"reference", "grouped"}) {
    const TpCase c{model, model, 2, 1, "mesh(tp=2)\n" + whole + tensor_parallel, 1};
    const PreparedTraining training = prepared(model_of(c), c.text());
    std::vector<int64_t> bytes;
    for (const CommunicationId sum : sums_of(*training.plan)) bytes.push_back(training.plan->communications[sum].bytes);
    EXPECT_EQ(bytes, std::vector<int64_t>(4 * 4, tp_batch * 4 * 16 * 8)) << model;
  }
}

/// With the sequence divided each of them is two: tokens are joined in front of what is sharded, and every sum leaves
/// each device its own. The first and the last chunk have all tokens: what the last one gives back need not be joined.
TEST(TpSums, AreTwoWithASequence) {
  constexpr int layers = 4;
  for (const bool again : {false, true}) {
    const TpCase c{"", "grouped", 2, 1, "mesh(tp=2)\n" + whole + (again ? regather : sequence), 1};
    const PreparedTraining training = prepared(model_of(c), c.text());
    std::map<OpKind, int> count;
    for (const PlannedOp& op : training.plan->templates.front().ops) {
      const bool weights =
          op.writes.empty() || training.plan->templates.front().buffers[op.writes[0]].category != Category::Activations;
      if (!op.communication.valid() || weights) continue;
      ++count[op.kind];
      EXPECT_EQ(training.plan->communications[op.communication].bytes,
                tp_batch * 4 * 16 * 8 / (op.kind == OpKind::LocalSlice ? 2 : 1));
    }
    const std::map<OpKind, int> expected = {{OpKind::ReduceScatter, 4 * layers},
                                            {OpKind::AllGather, (again ? 6 : 4) * layers + 1},
                                            {OpKind::LocalSlice, 2}};
    EXPECT_EQ(count, expected);
  }
}

TEST(LongTpSums, AreAllNeeded) {
  const size_t every =
      std::getenv("PIPER_LONG") ? 1 : 3;  // a layer has four or eight, so each has its turn in some layer
  // one key for all heads: its gradient and those of norms inside are parts that are summed once per step
  const std::string experts = "replicate({}, along=ep, zero=1)\nshard({experts=*}, along=ep)\n" + tensor_parallel;
  for (const auto& [model, directives] : {std::pair<std::string, std::string>{"normed_keys", tensor_parallel},
                                          {"one_key", tensor_parallel},
                                          {"normed_keys", sequence},
                                          {"one_key", vocabulary},
                                          {"reference", everything},
                                          {"biased_mixture", experts}}) {
    const int slices = directives == experts ? 2 : 1;
    const TpCase c{model, model, 2 * slices, slices, fmt::format("mesh(ep={}, tp=2)\n", slices) + whole + directives,
                   1};
    const TrainableModel trained = model_of(c);
    const PreparedTraining training = prepared(trained, c.text());
    TrainSettings once = settings(c);
    once.steps = 1;
    const Trained expected = train(trained, one_device(c), once);
    EXPECT_THAT(complaints(train(trained, *training.captured, training.plan, once), expected, 1e-12),
                testing::IsEmpty());
    const std::vector<CommunicationId> sums = sums_of(*training.plan);
    EXPECT_GE(sums.size(), 16u);
    std::set<CommunicationId> local;  // nothing is sent
    for (const PlannedOp& op : training.plan->templates.front().ops)
      if (op.kind == OpKind::LocalSlice) local.insert(op.communication);
    for (size_t i = 0; i < sums.size(); i += every) {
      const CommunicationId sum = sums[i];
      if (local.contains(sum)) continue;
      TrainSettings faulty = once;
      faulty.communicator = [&](std::unique_ptr<Communicator> to) {
        return std::make_unique<LeavesOut>(std::move(to), sum.value);
      };
      const Trained run = train(trained, *training.captured, training.plan, faulty);
      EXPECT_GT(compare(run, expected).error, 1e-6)
          << model << ": " << training.plan->names[training.plan->communications[sum].label.name];
    }
  }
}

}  // namespace
}  // namespace piper
