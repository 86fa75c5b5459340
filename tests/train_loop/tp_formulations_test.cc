// Whatever is sharded, however it is written: it is right, or refused.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>

#include "schedule/schedule_text.h"
#include "train_loop/tp_cases.h"

namespace piper {
namespace {

/// A feed-forward written in some way: x [samples, 4, 8], a [16, 8], b [8, 16], whose second dimension is sharded, c
/// [8].
struct Formulation {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c)> run;
  int devices = 4;  // up to so many it can be cut among
};
void PrintTo(const Formulation& formulation, std::ostream* out) {
  *out << formulation.name;
}

std::vector<Formulation> formulations() {
  using at::Tensor;
  const auto up = [](const Tensor& x, const Tensor& a) { return at::linear(x, a); };
  const auto down = [](const Tensor& h, const Tensor& b) { return at::linear(h, b); };
  const auto joined = [](std::vector<Tensor> blocks) {
    blocks[0] = blocks[0].relu();
    blocks.back() = blocks.back().square();
    return at::cat(blocks, -1);
  };
  const auto copied = [](const Tensor& h, int64_t dim) {  // a half as it is, a half changed
    const int64_t half = h.size(dim) / 2;
    Tensor out = h.new_empty(h.sizes());
    out.narrow(dim, 0, half).copy_(h.narrow(dim, 0, half));
    out.narrow(dim, half, half).copy_(h.narrow(dim, half, half).relu());
    return out;
  };
#define FORMULATION(body)                                                   \
  [=](const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& c) { \
    (void)c;                                                                \
    return body;                                                            \
  }
  return {
      {"plain", FORMULATION(down(up(x, a).relu(), b))},
      {"residual", FORMULATION(x + down(up(x, a).relu(), b))},
      {"number_behind", FORMULATION((down(up(x, a).relu(), b) + 1).square())},
      {"number_inside", FORMULATION(down(up(x, a) + 1, b))},
      {"scaled_twice", FORMULATION(down(up(x, a).relu(), b) * 2 / 3)},
      {"squared", FORMULATION(down(up(x, a), b).square())},
      {"rounded", FORMULATION(at::div(down(up(x, a).relu(), b), 0.01, "floor") + x * c)},
      {"in_place", FORMULATION(down(up(x, a).relu(), b).add_(x))},
      {"bias", FORMULATION(at::linear(up(x, a).relu(), b, c))},
      {"two_of_them", FORMULATION(down(up(x, a).relu(), b) + down(up(x, a).sigmoid(), b))},
      {"one_behind_the_other", FORMULATION(down(up(down(up(x, a).relu(), b), a).relu(), b))},
      {"times_whole", FORMULATION(down(up(x, a).relu(), b) * c)},
      {"times_itself", FORMULATION(down(up(x, a), b) * down(up(x, a).relu(), b))},
      {"gated_by_sum", FORMULATION(down(up(x, a).relu() * down(up(x, a), b).sigmoid().sum(-1, true), b))},
      {"heads",
       FORMULATION(down(
           up(x, a).view({x.size(0), 4, 4, 4}).transpose(1, 2).relu().transpose(1, 2).reshape({x.size(0), 4, 16}), b))},
      {"halves_joined", FORMULATION(down(at::cat({up(x, a).view({x.size(0), 4, 4, 2, 2}).select(3, 0),
                                                  up(x, a).view({x.size(0), 4, 4, 2, 2}).select(3, 1)},
                                                 -1)
                                             .reshape({x.size(0), 4, 16}),
                                         b))},
      {"softmax", FORMULATION(down(at::softmax(up(x, a), -1), b)), 0},
      {"mean", FORMULATION(down(up(x, a) - up(x, a).mean(-1, true), b))},
      {"mean_of_heads", FORMULATION(down(up(x, a) * up(x, a).view({-1, 4, 4, 4}).mean({2, 3}).unsqueeze(-1), b))},
      {"root_mean_square", FORMULATION(down(at::rms_norm(up(x, a), {16}), b))},
      {"norm", FORMULATION(down(at::layer_norm(up(x, a), {16}), b)), 0},
      {"slice", FORMULATION(down(at::cat({up(x, a).narrow(-1, 0, 8), up(x, a).narrow(-1, 8, 8)}, -1), b))},
      {"gated", FORMULATION(down(
                    at::cat({up(x, a).chunk(2, -1)[0] * up(x, a).chunk(2, -1)[1], up(x, a).chunk(2, -1)[1]}, -1), b))},
      {"blocks", FORMULATION(down(joined(at::split_with_sizes(up(x, a), {8, 4, 4}, -1)), b))},
      {"blocks_of_slices",
       FORMULATION(
           down(joined({up(x, a).narrow(-1, 0, 8), up(x, a).narrow(-1, 8, 4), up(x, a).narrow(-1, 12, 4)}), b))},
      {"blocks_of_blocks",
       FORMULATION(down(at::cat({up(x, a).narrow(-1, 0, 8).relu(),
                                 joined(at::split_with_sizes(up(x, a).narrow(-1, 8, 8), {4, 4}, -1))},
                                -1),
                        b))},
      {"tokens_copied", FORMULATION(down(copied(up(x, a), 1), b))},
      {"blocks_copied", FORMULATION(down(copied(up(x, a), 2), b))},
      {"every_second",
       FORMULATION(down(
           at::cat({up(x, a).slice(-1, 0, 16, 2) * up(x, a).slice(-1, 1, 16, 2), up(x, a).slice(-1, 1, 16, 2)}, -1),
           b))},
      {"greatest_of_heads",
       FORMULATION(down((up(x, a).view({-1, 4, 4, 4}) - std::get<0>(up(x, a).view({-1, 4, 4, 4}).max(-1, true)))
                            .reshape({-1, 4, 16}),
                        b))},
      {"tokens_by_index",
       FORMULATION(down(up(x, a).index_select(1, at::arange(4, at::TensorOptions(x.device())).flip(0)), b))},
      {"blocks_of_few_heads",
       FORMULATION(down(joined({at::softmax(up(x, a).narrow(-1, 0, 8).view({-1, 4, 2, 4}), -1).reshape({-1, 4, 8}),
                                up(x, a).narrow(-1, 8, 4), up(x, a).narrow(-1, 12, 4)}),
                        b)),
       2},
      {"positions", FORMULATION(down(up(x, a) * at::arange(16, x.options()), b))},
      {"positions_with_steps", FORMULATION(down(up(x, a) * at::arange(3, 35, 2, x.options()), b))},
      {"positions_of_heads",
       FORMULATION(
           down((up(x, a).view({-1, 4, 4, 4}) * at::arange(1, 5, x.options()).view({4, 1})).reshape({-1, 4, 16}), b))},
      {"positions_of_blocks",
       FORMULATION(down(joined(at::split_with_sizes(up(x, a) * at::arange(16, x.options()), {8, 4, 4}, -1)), b)), 0},
      {"tokens_repeated", FORMULATION(down(up(x, a).repeat({1, 2, 1}).narrow(1, 2, 4), b))},
      {"one_repeated", FORMULATION(down(up(x, a) * up(x, a).sum(-1, true).repeat({1, 1, 16}), b)), 0},
      {"tokens_flipped", FORMULATION(down(up(x, a).flip(1), b))},
      {"tokens_padded", FORMULATION(down(at::constant_pad_nd(up(x, a), {0, 0, 1, 0}, 2).narrow(1, 0, 4), b))},
      {"padded", FORMULATION(down(at::constant_pad_nd(up(x, a), {1, 0}, 2).narrow(-1, 0, 16), b)), 0},
      {"a_block_is_whole", FORMULATION(down(at::cat({up(x, a).narrow(-1, 0, 8), x}, -1), b)), 0},
      {"block_of_odd_size", FORMULATION(down(joined(at::split_with_sizes(up(x, a), {8, 5, 3}, -1)), b)), 0},
      {"flip", FORMULATION(down(up(x, a).flip(-1), b)), 0},
      {"cumsum", FORMULATION(down(up(x, a).cumsum(-1), b)), 0},
      {"index", FORMULATION(down(up(x, a).index_select(-1, at::arange(16, at::TensorOptions(x.device())).flip(0)), b)),
       0},
  };
#undef FORMULATION
}

TrainableModel model_of(const Formulation& formulation) {
  TrainableModel model = bare_model(formulation.name);
  const auto parameter = [&](const char* name, std::vector<int64_t> sizes) {
    return add_parameter(model, name, sizes);
  };
  const at::Tensor e = parameter("e", {32, 8}), a = parameter("a", {16, 8}), b = parameter("b", {8, 16}),
                   c = parameter("c", {8});
  model.meta.loss = [=](const std::vector<at::Tensor>& inputs) {
    const at::Tensor x = at::embedding(e, inputs[0]);
    return ((formulation.run(x, a, b, c) + c) * x).square().mean();
  };
  return model;
}

class TpFormulations : public testing::TestWithParam<Formulation> {};

TEST_P(TpFormulations, AreRightOrRefused) {
  const Formulation& formulation = GetParam();
  const TrainableModel model = model_of(formulation);
  const auto schedule = [&](int devices) {
    return fmt::format("mesh(tp={})\n", devices) + whole + "shard({}, along=tp, parameters=\"b: 1\")\n";
  };
  const TrainSettings once = bare_settings();
  for (const int devices : {2, 4}) {
    auto training = prepare_training(model, *parse_schedule(make_source("schedule.piper", schedule(devices))));
    ASSERT_EQ(bool(training), devices <= formulation.devices) << (training ? "" : render(training.error()));
    if (!training) {
      EXPECT_EQ(name(training.error().code), "E317") << render(training.error());
      continue;
    }
    const Trained run = train(model, *training->captured, training->plan, once);
    EXPECT_THAT(complaints(run, train(model, in_turn(1), once), 1e-12), testing::IsEmpty());
  }
}
INSTANTIATE_TEST_SUITE_P(All, TpFormulations, testing::ValuesIn(formulations()),
                         [](const auto& info) { return info.param.name; });

/// A loss over a vocabulary, written in some way: x [samples, 4, 8], w [16, 8], e [32, 8], both cut by rows, targets
/// [samples, 4] among 16.
struct HeadFormulation {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w, const at::Tensor& e, const at::Tensor& targets)>
      loss;
  bool accepted = true;
};
void PrintTo(const HeadFormulation& formulation, std::ostream* out) {
  *out << formulation.name;
}

std::vector<HeadFormulation> head_formulations() {
  using at::Tensor;
  const auto logits = [](const Tensor& x, const Tensor& w) { return at::linear(x, w).view({-1, w.size(0)}); };
  const auto loss = [](const Tensor& scores, const Tensor& t, int64_t reduction = at::Reduction::Mean,
                       int64_t ignored = -100, double smoothing = 0) {
    return at::cross_entropy_loss(scores, t.reshape({-1}), {}, reduction, ignored, smoothing);
  };
#define FORMULATION(body)                                                   \
  [=](const Tensor& x, const Tensor& w, const Tensor& e, const Tensor& t) { \
    (void)w, (void)e, (void)t;                                              \
    return body;                                                            \
  }
  return {
      {"mean", FORMULATION(loss(logits(x, w), t))},
      {"sum", FORMULATION(loss(logits(x, w), t, at::Reduction::Sum))},
      {"each", FORMULATION(loss(logits(x, w), t, at::Reduction::None).square().mean())},
      {"ignored", FORMULATION(loss(logits(x, w), t, at::Reduction::Mean, 3))},
      {"ignored_sum", FORMULATION(loss(logits(x, w), t, at::Reduction::Sum, 3))},
      {"scaled", FORMULATION(loss(logits(x, w) / 3, t) * 2)},
      {"capped", FORMULATION(loss((logits(x, w) / 2).tanh() * 2, t))},
      {"shifted", FORMULATION(loss(at::linear(x, w).narrow(1, 0, 3).reshape({-1, 16}), t.narrow(1, 1, 3)))},
      {"tied", FORMULATION(loss(logits(x, e), t))},
      {"two", FORMULATION(loss(logits(x, w), t) + loss(logits(x, e), t))},
      {"two_on_one", FORMULATION(loss(logits(x, w), t) + loss(logits(x, w) / 2, t))},
      {"narrow", FORMULATION(loss(logits(x, w).to(at::kFloat), t).to(at::kDouble))},
      {"large", FORMULATION(loss(logits(x * 300, w), t))},  // overflows without the greatest
      {"smoothed", FORMULATION(loss(logits(x, w), t, at::Reduction::Mean, -100, 0.1)), false},
      {"weighted", FORMULATION(at::cross_entropy_loss(logits(x, w), t.reshape({-1}), at::ones({16}, x.options()))),
       false},
      {"probabilities", FORMULATION(at::softmax(logits(x, w), -1).square().mean()), false},
      {"logarithms", FORMULATION(at::log_softmax(logits(x, w), -1).mean()), false},
      {"both_uses", FORMULATION(loss(logits(x, w), t) + at::log_softmax(logits(x, w), -1).square().mean()), false},
  };
#undef FORMULATION
}

TrainableModel model_of(const HeadFormulation& formulation) {
  TrainableModel model = bare_model(formulation.name);
  const auto parameter = [&](const char* name, std::vector<int64_t> sizes) {
    return add_parameter(model, name, sizes);
  };
  const at::Tensor e = parameter("e", {32, 8}), w = parameter("w", {16, 8}), c = parameter("c", {8});
  model.meta.loss = [=](const std::vector<at::Tensor>& inputs) {
    const at::Tensor x = at::embedding(e, inputs[0]) * c;
    return formulation.loss(x, w, e, inputs[0].remainder(16)) + w.square().sum() * 0.1;
  };
  return model;
}

class TpHeads : public testing::TestWithParam<HeadFormulation> {};

TEST_P(TpHeads, AreRightOrRefused) {
  const HeadFormulation& formulation = GetParam();
  const TrainableModel model = model_of(formulation);
  const TrainSettings once = bare_settings();
  for (const int devices : {2, 4}) {
    const std::string schedule =
        fmt::format("mesh(tp={})\n", devices) + whole + "shard({}, along=tp, parameters=\"e: 0, w: 0\")\n";
    auto training = prepare_training(model, *parse_schedule(make_source("schedule.piper", schedule)));
    ASSERT_EQ(bool(training), formulation.accepted) << (training ? "" : render(training.error()));
    if (!training) {
      EXPECT_EQ(name(training.error().code), "E317") << render(training.error());
      continue;
    }
    const Trained run = train(model, *training->captured, training->plan, once);
    EXPECT_THAT(complaints(run, train(model, in_turn(1), once), formulation.name == "narrow" ? 1e-6 : 1e-12),
                testing::IsEmpty());
  }
}
INSTANTIATE_TEST_SUITE_P(All, TpHeads, testing::ValuesIn(head_formulations()),
                         [](const auto& info) { return info.param.name; });

/// Whatever is sharded: it is refused, or right. A third of all; with PIPER_LONG=1 all.
TEST(ThoroughTpSeeds, AreRefusedOrRight) {
  const int every = std::getenv("PIPER_LONG") ? 1 : 5;
  int tried = 0, right = 0, refused = 0;
  for (const auto& [kind, config] : tp_models()) {
    const TpCase c{kind, kind, 2, 1, "", 1};
    const TrainableModel model = model_of(c, 1);
    TrainSettings once = settings(c);
    once.steps = 1;
    for (const NamedTensor& parameter : model.meta.parameters)
      for (int64_t at = 0; at < 2 * parameter.tensor.dim(); ++at) {
        if (tried++ % every != 0) continue;
        const auto schedule = [&](int devices) {
          return fmt::format("mesh(tp={})\n", devices) + whole +
                 fmt::format("shard({{}}, along=tp, parameters=\"{}: {}\"{})\n", parameter.name, at / 2,
                             at % 2 ? ", sequence=on" : "");
        };
        SCOPED_TRACE(kind + "\n" + schedule(2));
        auto parsed = parse_schedule(make_source("schedule.piper", schedule(2)));
        ASSERT_TRUE(parsed) << render(parsed.error());
        auto training = prepare_training(model, *parsed);
        if (!training) {
          EXPECT_EQ(name(training.error().code), "E317") << render(training.error());
          ++refused;
          continue;
        }
        const Trained run = without_key_bias(train(model, *training->captured, training->plan, once));
        EXPECT_THAT(complaints(run, without_key_bias(train(model, schedule(1), once)), 1e-12), testing::IsEmpty());
        ++right;
      }
  }
  EXPECT_GT(right, 20);
  EXPECT_GT(refused, 20);
  std::cout << right << " right, " << refused << " refused\n";
}

}  // namespace
}  // namespace piper
