// Experts that are divided among devices, and cut inside among others, equal one device; or are refused.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <iostream>

#include "capture/record/annotate.h"
#include "every.h"
#include "schedule/schedule_text.h"
#include "train_loop/tp_cases.h"

namespace piper {
namespace {

const std::string shard_experts = "shard({experts=*}, along=ep)\n";

std::vector<TpCase> expert_cases() {
  std::vector<TpCase> out;
  const auto add = [&](const std::string& name, const std::string& model, const std::string& mesh, int devices,
                       int slices, const std::string& more) {
    out.push_back({name + "_" + model, model, devices, slices, "mesh(" + mesh + ")\n" + more});
  };
  const auto replicate = [](const std::string& along, int zero) {
    return fmt::format("replicate({{}}, along={}, zero={}, bucket=1KB)\n", along, zero);
  };
  add("four_parts", "reference_mixture", "ep=2, tp=4", 8, 8,
      whole + replicate("ep", 0) + shard_experts + tensor_parallel);
  for (const std::string model : {"reference_mixture", "mixture"}) {
    add("four_groups", model, "ep=4, tp=2", 8, 16, whole + replicate("ep", 2) + shard_experts + tensor_parallel);
    add("replicas", model, "dp=2, ep=2, tp=2", 8, 16,
        whole + replicate("[dp, ep]", 1) + shard_experts + tensor_parallel);
  }
  for (const int zero : {0, 1, 2, 3})
    add(fmt::format("zero{}", zero), "biased_mixture", "ep=2, tp=2", 4, 8,
        whole + replicate("ep", zero) + shard_experts + (zero % 2 ? tensor_parallel : sequence));
  add("only_experts", "reference_mixture", "ep=2, tp=2", 4, 8,
      whole + replicate("ep", 1) + shard_experts + "shard({experts=*}, along=tp, parameters=\"*.w_down: 1\")\n");
  add("not_the_experts", "reference_mixture", "ep=2, tp=2", 4, 8,
      whole + replicate("ep", 1) + shard_experts + "shard({layer=*}, along=tp, parameters=\"*.wo: 1\")\n");
  add("not_sharded", "biased_mixture", "dp=2, tp=2", 4, 8, whole + replicate("dp", 1) + tensor_parallel);
  add("some_sharded", "mixture", "ep=2, tp=2", 4, 8,
      whole + replicate("ep", 1) + "shard({layer=1, experts=*}, along=ep)\n" + tensor_parallel);
  add("shared", "shared_mixture", "ep=2, tp=2", 4, 8, whole + replicate("ep", 3) + shard_experts + vocabulary);
  for (const auto& [timeline, model, shape] :
       {std::tuple<std::string, std::string, std::string>{"1f1b", "biased_mixture", "stages=2"},
        {"zb-h1", "mixture", "stages=2"},
        {"zb-v", "reference_mixture", "stages=4, shape=v"},
        {"dualpipev", "mixture", "stages=4, shape=v"}}) {
    std::string name = timeline;
    std::replace(name.begin(), name.end(), '-', '_');
    add(name, model, "pp=2, ep=2, tp=2", 8, 8,
        fmt::format("place({{}}, along=pp, {})\n", shape) + replicate("ep", 1) + shard_experts + tensor_parallel +
            (timeline == "1f1b" ? "recompute({layer=*})\n" : "") +
            fmt::format("use {}(stages=stage, microbatches=mb)\n", timeline));
  }
  return out;
}

class TpExperts : public testing::TestWithParam<TpCase> {};

TEST_P(TpExperts, EqualOneDevice) {
  expect_equal_to_one_device(GetParam());
}
INSTANTIATE_TEST_SUITE_P(Some, TpExperts, testing::ValuesIn(every(4, expert_cases())),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Thorough, TpExperts, testing::ValuesIn(expert_cases()),
                         [](const auto& info) { return info.param.name; });

/// Experts written in some way: x [experts, slots, 8], a [experts, 8, 16], b [experts, 16, 8], whose second dimension
/// is sharded, c [experts, 8].
struct ExpertFormulation {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c)> run;
  bool accepted = true;
};
void PrintTo(const ExpertFormulation& formulation, std::ostream* out) {
  *out << formulation.name;
}

std::vector<ExpertFormulation> expert_formulations() {
  using at::Tensor;
#define FORMULATION(body)                                                   \
  [=](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& c) { \
    (void)c;                                                                \
    return body;                                                            \
  }
  return {
      {"plain", FORMULATION(at::bmm(at::bmm(x, a).relu(), b))},
      {"bias", FORMULATION(at::baddbmm(c.unsqueeze(1), at::bmm(x, a).relu(), b))},
      {"bias_behind", FORMULATION(at::bmm(at::bmm(x, a).relu(), b) + c.unsqueeze(1))},
      {"bias_in_front", FORMULATION(at::bmm(at::bmm(x * c.unsqueeze(1), a).relu(), b))},
      {"squared", FORMULATION(at::bmm(at::bmm(x, a), b).square())},
      {"residual", FORMULATION(x + at::bmm(at::bmm(x, a).relu(), b))},
      {"two_of_them", FORMULATION(at::bmm(at::bmm(x, a).relu(), b) + at::bmm(at::bmm(x, a).sigmoid(), b))},
      {"one_behind_the_other", FORMULATION(at::bmm(at::bmm(at::bmm(at::bmm(x, a).relu(), b), a).relu(), b))},
      {"einsum", FORMULATION(at::einsum("ecf,efd->ecd", {at::einsum("ecd,edf->ecf", {x, a}).relu(), b}))},
      {"flattened", FORMULATION(at::bmm(at::bmm(x, a).view({-1, 16}).relu().view({x.size(0), -1, 16}), b))},
      {"heads", FORMULATION(at::bmm(at::bmm(x, a).view({x.size(0), -1, 4, 4}).tanh().reshape({x.size(0), -1, 16}), b))},
      {"halves", FORMULATION(at::bmm(at::bmm(x, at::cat({a, a}, 2)).chunk(2, -1)[0].relu(), b))},
      {"dropout", FORMULATION(at::bmm(at::dropout(at::bmm(x, a).relu(), 0.25, true), b))},
      {"dropout_behind", FORMULATION(at::dropout(at::bmm(at::bmm(x, a).relu(), b), 0.25, true))},
      {"softmax", FORMULATION(at::bmm(at::softmax(at::bmm(x, a), -1), b)), false},
      {"mixed_slots", FORMULATION(at::bmm(at::bmm(x, a).cumsum(1), b)), false},
      {"mixed_experts", FORMULATION(at::bmm(at::bmm(x, a).flip(0), b)), false},
  };
#undef FORMULATION
}

TrainableModel model_of(const ExpertFormulation& formulation) {
  constexpr int64_t experts = 4;
  TrainableModel model = bare_model(formulation.name);
  const auto parameter = [&](const char* name, std::vector<int64_t> sizes) {
    return add_parameter(model, name, sizes);
  };
  const at::Tensor e = parameter("e", {32, 8}), r = parameter("r", {8, experts}), a = parameter("a", {experts, 8, 16}),
                   b = parameter("b", {experts, 16, 8}), c = parameter("c", {experts, 8});
  model.meta.loss = [=](const std::vector<at::Tensor>& inputs) {
    const at::Tensor x = at::embedding(e, inputs[0]).view({-1, 8});
    const at::Tensor gates = at::softmax(at::mm(x, r), -1).t().unsqueeze(-1);  // every token to every expert
    const at::Tensor given = gates * x.unsqueeze(0);
    const at::Tensor made = [&] {
      const annotate scope("experts", {.experts = experts});
      return formulation.run(given, a, b, c);
    }();
    return ((made * gates).sum(0) * x).square().mean();
  };
  return model;
}

class TpExpertFormulations : public testing::TestWithParam<ExpertFormulation> {};

TEST_P(TpExpertFormulations, AreRightOrRefused) {
  const ExpertFormulation& formulation = GetParam();
  const TrainableModel model = model_of(formulation);
  const std::string cut_b = "shard({}, along=tp, parameters=\"b: 1\")\n";
  const TrainSettings once = bare_settings();
  for (const auto& [ep, tp] : {std::pair{2, 2}, {2, 4}, {4, 2}, {1, 2}, {2, 1}}) {
    const std::string schedule =
        fmt::format("mesh(ep={}, tp={})\n", ep, tp) + whole + "replicate({}, along=ep)\n" + shard_experts + cut_b;
    auto training = prepare_training(model, *parse_schedule(make_source("schedule.piper", schedule)));
    if (!formulation.accepted && tp == 1 && training) continue;  // nothing that would be wrong
    ASSERT_EQ(bool(training), formulation.accepted) << (training ? schedule : render(training.error()));
    if (!training) {
      EXPECT_THAT(std::string(name(training.error().code)), testing::AnyOf("E308", "E317"));
      continue;
    }
    const Trained run = train(model, *training->captured, training->plan, once);
    const std::string alone = fmt::format("mesh(ep=1, tp=1)\nsplit(batch, parts={}, as=mb)\n", ep) + whole + cut_b;
    EXPECT_THAT(complaints(run, train(model, alone, once), 1e-12), testing::IsEmpty()) << schedule;
    EXPECT_THAT(complaints(run, train(model, in_turn(ep), once), 1e-12), testing::IsEmpty()) << schedule;
  }
}
INSTANTIATE_TEST_SUITE_P(All, TpExpertFormulations, testing::ValuesIn(expert_formulations()),
                         [](const auto& info) { return info.param.name; });

/// Whatever of the experts is sharded, and they are sharded too: it is refused, or right.
TEST(ThoroughTpExpertSeeds, AreRefusedOrRight) {
  int right = 0, refused = 0;
  for (const std::string kind : {"reference_mixture", "biased_mixture", "shared_mixture"}) {
    const TpCase c{kind, kind, 4, 2, "", 1};
    const TrainableModel model = model_of(c, 1);
    TrainSettings once = settings(c);
    once.steps = 1;
    for (const NamedTensor& parameter : model.meta.parameters)
      for (int64_t dim = 0; dim < parameter.tensor.dim(); ++dim) {
        const std::string directive =
            fmt::format("shard({{}}, along=tp, parameters=\"{}: {}\")\n", parameter.name, dim);
        const std::string schedule =
            "mesh(ep=2, tp=2)\n" + whole + "replicate({}, along=ep, zero=1)\n" + shard_experts + directive;
        SCOPED_TRACE(kind + "\n" + schedule);
        auto training = prepare_training(model, *parse_schedule(make_source("schedule.piper", schedule)));
        if (!training) {
          EXPECT_THAT(std::string(name(training.error().code)), testing::AnyOf("E308", "E317"))
              << render(training.error());
          ++refused;
          continue;
        }
        const Trained run = without_key_bias(train(model, *training->captured, training->plan, once));
        const std::string alone = "mesh(tp=1)\nsplit(batch, parts=2, as=mb)\n" + whole + directive;
        EXPECT_THAT(complaints(run, without_key_bias(train(model, alone, once)), 1e-12), testing::IsEmpty());
        ++right;
      }
  }
  EXPECT_GT(right, 10);
  EXPECT_GT(refused, 10);
  std::cout << right << " right, " << refused << " refused\n";
}

/// Devices that share samples would count every slot as often as there are of them.
TEST(CutExpertErrors, AreNotShardedAmongThoseWhoShareSamples) {
  const TpCase c{
      "", "mixture", 4, 8,
      "mesh(dp=2, tp=2)\n" + whole + "replicate({}, along=dp)\nshard({experts=*}, along=tp)\n" + tensor_parallel};
  auto training = prepare_training(model_of(c), *parse_schedule(make_source("schedule.piper", c.text())));
  ASSERT_FALSE(training);
  EXPECT_EQ(name(training.error().code), "E308");
  EXPECT_THAT(render(training.error()), testing::HasSubstr("work on the same samples: those along \"tp\""));
}

}  // namespace
}  // namespace piper
