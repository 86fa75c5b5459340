// Random numbers follow from their places in the batch alone, and are random.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "capture/capture.h"
#include "capture/program/draws.h"
#include "capture/record/annotate.h"
#include "runtime/draw/draw_operator.h"

namespace piper {
namespace {

using at::Tensor;

TEST(Philox, HasTheWordsOfItsAuthors) {  // kat_vectors of Random123
  struct Known {
    uint32_t counter[4];
    uint64_t key;
    uint32_t words[4];
  };
  for (const Known& known :
       {Known{{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        Known{{~0u, ~0u, ~0u, ~0u}, ~uint64_t{0}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        Known{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
              0x299f31d0a4093822,
              {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}}) {
    uint32_t words[4] = {known.counter[0], known.counter[1], known.counter[2], known.counter[3]};
    philox(PhiloxKey(known.key), words);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words[i], known.words[i]);
  }
}

const std::vector<std::pair<Drawing, at::ScalarType>>& drawings() {
  static const std::vector<std::pair<Drawing, at::ScalarType>> all = {
      {{Distribution::Bernoulli, 0.7, 1}, at::kFloat},    {{Distribution::Bernoulli, 0.7, 1}, at::kBool},
      {{Distribution::Bernoulli, 0.7, 1}, at::kBFloat16}, {{Distribution::Uniform, -1, 2}, at::kFloat},
      {{Distribution::Uniform, 0, 1}, at::kDouble},       {{Distribution::Uniform, 0, 1}, at::kHalf},
      {{Distribution::Normal, 1, 3}, at::kFloat},         {{Distribution::Normal, 0, 1}, at::kDouble},
      {{Distribution::Exponential, 2, 0}, at::kDouble},   {{Distribution::Integer, -3, 8}, at::kLong}};
  return all;
}

/// Draws what a device has of [samples, 4 heads, 5, 7].
struct Place {
  int64_t first_sample = 0, samples = 6;
  LocalShards shards = {};

  void fill(const Tensor& into, const Drawing& drawing, uint64_t step_seed = 3, int call = 2) const {
    const Drawn drawn{{{{samples, Mark::Sample}}, {{4, Mark::Sharded}}, {{5, Mark::Plain}}, {{7, Mark::Plain}}}};
    const DrawSite site(call, drawn, shards);
    std::vector<uint64_t> words;
    site.add_words({step_seed, first_sample}, words);
    draw_into(into.view(site.sizes), drawing, site.start, site.steps,
              at::from_blob(words.data(), {static_cast<int64_t>(words.size())}, at::kLong));
  }
};

TEST(Draws, APartIsThatOfTheWhole) {
  for (const auto& [drawing, type] : drawings()) {
    SCOPED_TRACE(static_cast<int>(drawing.kind));
    const Tensor whole = at::empty({6, 4, 5, 7}, type);
    Place{}.fill(whole, drawing);
    for (int64_t first = 0; first < 6; first += 2)
      for (int64_t part = 0; part < 2; ++part) {
        const Tensor own = whole.narrow(0, first, 2).narrow(1, 2 * part, 2);
        const Tensor some = at::empty({2, 2, 5, 7}, type), turned = at::empty({7, 2, 2, 5}, type).permute({1, 2, 3, 0});
        const Place place{first, 2, {ShardKind::Tp, {2, part}}};
        place.fill(some, drawing);
        EXPECT_TRUE(some.equal(own));
        place.fill(turned, drawing);
        EXPECT_TRUE(turned.equal(own));
        Tensor without_offset = at::empty_like(some);  // as if nobody had told it which part it is
        Place{first, 2, {ShardKind::Tp, {2, 0}}}.fill(without_offset, drawing);
        EXPECT_EQ(without_offset.equal(own), part == 0);
      }
  }
}

TEST(Draws, SlotsOfSeveralSlicesAreThoseOfEach) {
  const Drawing drawing{Distribution::Uniform, 0, 1};
  const auto slots = [&](LocalShard shard, std::vector<int64_t> gathered, int64_t first) {
    Drawn drawn{{{{4, Mark::Plain}}, {{3, Mark::Plain}}, {{5, Mark::Plain}}}, true};
    TensorLabels labels;
    labels.dims = {{{4, Mark::Expert}}, {{3, Mark::Capacity}}, {{5, Mark::Plain}}};
    EXPECT_TRUE(refine(drawn, labels));
    const DrawSite site(0, drawn, {ShardKind::Expert, shard});
    std::vector<uint64_t> words;
    site.add_words({7, first, std::move(gathered)}, words);
    const Tensor out = at::empty({4 / shard.count, 3 * shard.count, 5}, at::kDouble);
    draw_into(out.view(site.sizes), drawing, site.start, site.steps,
              at::from_blob(words.data(), {static_cast<int64_t>(words.size())}, at::kLong));
    return out;
  };
  const Tensor first = slots({}, {}, 8), second = slots({}, {}, 12);
  EXPECT_FALSE(first.equal(second));
  for (int64_t part = 0; part < 2; ++part) {
    const Tensor both = slots({2, part}, {8, 12}, part == 0 ? 8 : 12);
    EXPECT_TRUE(both.equal(at::cat({first.narrow(0, 2 * part, 2), second.narrow(0, 2 * part, 2)}, 1)));
  }
}

TEST(Draws, LabelsThatTakeSamplesApartAreRefused) {
  const auto fits = [](Factors drawn, Factors labels) {
    Drawn of{{std::move(drawn)}};
    TensorLabels with;
    with.dims = {std::move(labels)};
    return refine(of, with);
  };
  EXPECT_TRUE(fits({{4, Mark::Sample}, {6, Mark::Plain}}, {{4, Mark::Plain}, {6, Mark::Sharded}}));
  EXPECT_TRUE(fits({{4, Mark::Sample}, {6, Mark::Plain}}, {{8, Mark::Plain}, {3, Mark::Sharded}}));
  EXPECT_TRUE(fits({{3, Mark::Plain}, {4, Mark::Sample}}, {{3, Mark::Sharded}, {4, Mark::Plain}}));
  EXPECT_TRUE(fits({{4, Mark::Sample}, {6, Mark::Plain}}, {{24, Mark::Capacity}}));
  EXPECT_FALSE(fits({{4, Mark::Sample}, {6, Mark::Plain}}, {{2, Mark::Sharded}, {12, Mark::Plain}}));
  EXPECT_FALSE(fits({{4, Mark::Sample}, {6, Mark::Plain}}, {{24, Mark::Sharded}}));
}

/// Of two columns of numbers.
double correlation(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(at::kDouble) - a.to(at::kDouble).mean(), y = b.to(at::kDouble) - b.to(at::kDouble).mean();
  return ((x * y).sum() / (x.square().sum() * y.square().sum()).sqrt()).item<double>();
}

TEST(Draws, AreRandom) {
  constexpr int64_t samples = 64, each = 20000;
  const auto masks = [&](uint64_t seed, int call) {
    const Tensor out = at::empty({samples, each}, at::kFloat);
    draw_of_slice(out, {Distribution::Bernoulli, 0.8, 1}, call, {seed, 0}, samples);
    return out;
  };
  const Tensor drawn = masks(1, 0);
  const double five = 5 / std::sqrt(static_cast<double>(drawn.numel()));  // deviations: nothing here is left to chance
  EXPECT_NEAR(drawn.mean().item<double>(), 0.8, 0.4 * five);
  for (const int64_t apart : {1, 2, 3, 4, 128})
    EXPECT_LT(std::abs(correlation(drawn.narrow(1, 0, each - apart), drawn.narrow(1, apart, each - apart))), five)
        << apart;
  EXPECT_LT(std::abs(correlation(drawn.narrow(0, 0, samples - 1), drawn.narrow(0, 1, samples - 1))), five);
  EXPECT_LT(std::abs(correlation(drawn, masks(2, 0))), five);                    // the next step
  EXPECT_LT(std::abs(correlation(drawn, masks(1, 1))), five);                    // the next call
  EXPECT_LT(std::abs(correlation(drawn, masks(0x9E3779B97F4A7C15u, 0))), five);  // another seed
  const Tensor by_sample = drawn.mean(1);
  EXPECT_NEAR(by_sample.std().item<double>(), 0.4 / std::sqrt(static_cast<double>(each)), 0.001);
}

TEST(Draws, HaveTheirMoments) {
  const auto drawn = [](Distribution kind, double a, double b, at::ScalarType type = at::kDouble) {
    const Tensor out = at::empty({100, 10000}, type);
    draw_of_slice(out, {kind, a, b}, 4, {9, 0}, 100);
    return out;
  };
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const Tensor uniform = drawn(Distribution::Uniform, 0, 1, type).to(at::kDouble);
    EXPECT_NEAR(uniform.mean().item<double>(), 0.5, type == at::kBFloat16 ? 3e-3 : 1.5e-3);
    EXPECT_NEAR(uniform.var().item<double>(), 1.0 / 12, 1e-3);
    EXPECT_GE(uniform.min().item<double>(), 0);
    EXPECT_LT(uniform.max().item<double>(), 1);
  }
  const Tensor normal = drawn(Distribution::Normal, 3, 2);
  EXPECT_NEAR(normal.mean().item<double>(), 3, 0.01);
  EXPECT_NEAR(normal.var().item<double>(), 4, 0.03);
  EXPECT_NEAR((normal - 3).pow(3).mean().item<double>(), 0, 0.15);
  EXPECT_NEAR((normal - 3).pow(4).mean().item<double>(), 48, 1);
  const Tensor exponential = drawn(Distribution::Exponential, 2, 0);
  EXPECT_NEAR(exponential.mean().item<double>(), 0.5, 0.003);
  EXPECT_GT(exponential.min().item<double>(), 0);
  const Tensor whole = drawn(Distribution::Integer, -2, 3, at::kLong);
  for (int64_t number = -2; number < 3; ++number)
    EXPECT_NEAR((whole == number).to(at::kDouble).mean().item<double>(), 0.2, 0.002) << number;
  EXPECT_EQ(whole.min().item<int64_t>(), -2);
  EXPECT_EQ(whole.max().item<int64_t>(), 2);
}

/// Where samples are in what is drawn: `[S, 6]`, `[6*S]`; `all` of them, if it has none.
std::string places(const std::function<Tensor(const Tensor& y)>& loss, std::vector<int64_t> samples = {4}) {
  Tensor weight;
  MetaModel model;
  EXPECT_TRUE(build_on_meta([&] { weight = at::randn({6, 6}).requires_grad_(true); }));
  model.parameters = {{"weight", weight}};
  model.loss = [&](const std::vector<Tensor>& inputs) {
    const annotate scope("layer");
    return loss(at::matmul(inputs[0], weight)).sum();
  };
  CaptureOptions options;
  options.step.batch = 8;
  options.inputs = {{"x", DType::Float32, {6}}};
  options.samples = std::move(samples);
  auto captured = capture(model, options);
  if (!captured) return render(captured.error());
  std::string out;
  for (const ChunkBodies& chunk : captured->slices()[0].chunks)
    for (const Call& call : chunk.find(Pass::F)->calls) {
      if (call.random < 0) continue;
      std::vector<std::string> dims;
      bool any = false;
      for (const Factors& dim : call.drawn.dims) {
        std::vector<std::string> factors;
        for (const Factor& factor : dim) {
          any = any || factor.mark == Mark::Sample;
          factors.push_back(factor.mark == Mark::Sample ? "S" : fmt::format("{}", factor.size));
        }
        dims.push_back(factors.empty() ? "1" : fmt::format("{}", fmt::join(factors, "*")));
      }
      out += fmt::format("{}[{}]{}", out.empty() ? "" : " ", fmt::join(dims, ", "), any ? "" : " all");
    }
  return out;
}

TEST(SampleLabels, AreFoundWhereverSamplesAre) {
  const auto drop = [](const Tensor& y) { return at::dropout(y, 0.5, true); };
  EXPECT_EQ(places(drop), "[S, 6]");
  EXPECT_EQ(places(drop, {1}), "[S, 6]");
  EXPECT_EQ(places(drop, {1, 2, 8}), "[S, 6]");
  EXPECT_EQ(places([&](const Tensor& y) { return drop(y.t()); }), "[6, S]");
  EXPECT_EQ(places([&](const Tensor& y) { return drop(y.view({-1})); }), "[S*6]");
  EXPECT_EQ(places([&](const Tensor& y) { return drop(y.view({-1, 2})); }), "[S*3, 2]");
  EXPECT_EQ(places([&](const Tensor& y) { return drop(y.t().reshape({-1})); }), "[6*S]");
  EXPECT_EQ(places([&](const Tensor& y) {
              return drop(y.view({-1, 2, 3}).permute({1, 0, 2}).reshape({-1, 3}));
            }),
            "[2*S, 3]");
  // through an operator of which nothing is known
  EXPECT_EQ(places([&](const Tensor& y) { return drop(y.roll(1, 1).view({-1})); }), "[S*6]");
  EXPECT_EQ(places([&](const Tensor& y) {
              const Tensor once = drop(y).view({-1});
              return once + drop(drop(y).view({-1}));
            }),
            "[S, 6] [S, 6] [S*6]");
}

TEST(SampleLabels, OfAllOperators) {
  EXPECT_EQ(places([](const Tensor& y) { return std::get<0>(at::native_dropout(y, 0.5, true)); }), "[S, 6]");
  EXPECT_EQ(places([](const Tensor& y) { return y * at::rand_like(y) + at::randn_like(y); }), "[S, 6] [S, 6]");
  EXPECT_EQ(places([](const Tensor& y) { return y * at::rand({y.size(0), 1}, y.options()); }), "[S, 1]");
  EXPECT_EQ(places([](const Tensor& y) { return y + at::empty_like(y).uniform_(0, 2) + at::empty_like(y).normal_(); }),
            "[S, 6] [S, 6]");
  EXPECT_EQ(places([](const Tensor& y) { return y - at::empty_like(y).exponential_().log(); }), "[S, 6]");
  EXPECT_EQ(places([](const Tensor& y) { return y * at::bernoulli(y.detach().sigmoid()); }), "[S, 6]");
  EXPECT_EQ(places([](const Tensor& y) { return y * at::randint(3, {y.size(0), 6}, y.options()); }), "[S, 6]");
  EXPECT_EQ(places([](const Tensor& y) { return at::feature_dropout(y.view({-1, 2, 3}), 0.5, true); }), "[S, 2, 1]");
}

TEST(SampleLabels, WhatDoesNotGrowBelongsToAll) {
  EXPECT_EQ(places([](const Tensor& y) { return y * at::rand({6}, y.options()); }), "[6] all");
  EXPECT_EQ(places([](const Tensor& y) { return y * at::rand({4, 6}, y.options()).sum(); }), "[4, 6] all");
  EXPECT_EQ(places([](const Tensor& y) { return at::dropout(y[0], 0.5, true); }), "[6] all");
}

}  // namespace
}  // namespace piper
