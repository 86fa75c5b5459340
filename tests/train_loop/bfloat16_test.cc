// Weights in bfloat16, with master copies in float32: what is still equal, and how far the rest may be apart.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "every.h"
#include "train_loop/combination.h"
#include "train_loop/wrappers.h"

namespace piper {
namespace {

double unit_roundoff(DType dtype) {
  return std::ldexp(1, dtype == DType::BFloat16 ? -8 : -24);
}

struct Case {
  Combination combination;
  DType gradients;
  Subject subject() const {
    return {combination.kind, combination.layers(), DType::BFloat16, Optimizer::AdamW, subject_batch, gradients};
  }
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.combination.describe() << " gradients in " << name(c.gradients);
}

/// One device that runs all slices in turn, and what its gradients of the first step consist of: element by element
/// the sum of the absolute values that were added up, and how many at most.
struct Reference {
  Trained run;
  Tensors absolute;
  int64_t contributions = 0;
};
Reference make_reference(const Subject& subject, int64_t slices) {
  const CapturedModel& model = captured(subject, {subject.batch / slices});
  auto compiled = compile_for(model, in_turn(slices));
  if (!compiled) throw std::runtime_error(render(compiled.error()));
  const auto plan = std::make_shared<const Plan>(compiled->plan);
  const TrainableModel& trainable = model_of(subject);
  TrainSettings settings = usual_settings(subject);
  Reference out;
  out.run = train(trainable, model, plan, settings);
  std::map<std::string, int64_t> counts;
  settings.steps = 1;
  settings.computations = [&](Computations& in) {
    return intervene(in, [&](const ComputationSite& site, const ComputationArguments& given, const auto& as_usual) {
      const std::vector<std::string> names = in.form(site.name, site.pass).gradients;
      std::vector<at::Tensor> alone;
      for (const at::Tensor& gradient : given.gradients) alone.push_back(at::zeros_like(gradient));
      as_usual({given.reads, given.parameters, alone, given.writes, given.slice});
      for (size_t i = 0; i < alone.size(); ++i) {
        at::Tensor& sum = out.absolute[names[i]];
        const at::Tensor size = alone[i].to(at::kDouble).abs() / static_cast<double>(plan->losses);
        sum = sum.defined() ? sum + size : size;
        out.contributions = std::max(out.contributions, ++counts[names[i]]);
        given.gradients[i].add_(alone[i]);
      }
    });
  };
  train(trainable, model, plan, settings);
  return out;
}
const Reference& reference_of(const Subject& subject, int64_t slices) {
  static std::map<std::pair<Subject, int64_t>, Reference> all;
  const auto found = all.find({subject, slices});
  if (found != all.end()) return found->second;
  return all.emplace(std::pair{subject, slices}, make_reference(subject, slices)).first->second;
}

/// The same numbers at the start, and everything in float32 from there on.
Trained in_float32(const Subject& narrow, int64_t slices) {
  const Subject wide{narrow.kind, narrow.layers, DType::Float32, narrow.optimizer, narrow.batch};
  TrainableModel model = model_of(wide);
  model.initialize = [&](const std::string& name, at::Tensor& whole) {
    at::Tensor rounded = at::empty(whole.sizes(), at::kBFloat16);
    model_of(narrow).initialize(name, rounded);
    whole.copy_(rounded);
  };
  const CapturedModel& captures = captured(wide, {wide.batch / slices});
  auto compiled = compile_for(captures, in_turn(slices));
  if (!compiled) throw std::runtime_error(render(compiled.error()));
  Trained out = train(model, captures, std::make_shared<const Plan>(compiled->plan), usual_settings(narrow));
  for (const auto& [name, moment] : out.moment1) out.masters[name] = out.weights.at(name);
  return out;
}

Trained run(const Case& c, const std::function<void(TrainSettings&)>& change) {
  const CapturedModel& model = captured(c.subject(), {subject_batch / c.combination.slices()});
  auto compiled = compile_for(model, c.combination.schedule());
  if (!compiled) throw std::runtime_error(render(compiled.error()));
  TrainSettings settings = usual_settings(c.subject());
  change(settings);
  return train(model_of(c.subject()), model, std::make_shared<const Plan>(compiled->plan), settings);
}

/// Gradients of the first step that are farther apart than their sums can be.
/// Two sums of the same n numbers, rounded after each addition, are at most 2 (n - 1) u sum |x| apart, in whatever
/// orders. Where experts are divided, a device adds up all slices at once: its contribution is rounded once instead of
/// once for each slice, which is another 2 u sum |x| in the type of the contributions.
std::vector<std::string> beyond_rounding(const Case& c, const Trained& run, const Reference& reference) {
  const double factor = 2 * static_cast<double>(reference.contributions - 1) * unit_roundoff(c.gradients) +
                        (c.combination.grid.experts > 1 ? 2 * unit_roundoff(DType::BFloat16) : 0);
  std::vector<std::string> out;
  for (const auto& [name, expected] : reference.run.gradients[0]) {
    const at::Tensor apart = (run.gradients[0].at(name).to(at::kDouble) - expected.to(at::kDouble)).abs();
    const at::Tensor allowed = reference.absolute.at(name) * (1.001 * factor);  // of the first order
    if (!(apart <= allowed).all().item<bool>())
      out.push_back(
          fmt::format("{}: {:.2g} of what is allowed", name, (apart / allowed).nan_to_num(0).max().item<double>()));
  }
  return out;
}

std::vector<Case> cases() {
  std::vector<Combination> out;
  const auto add = [&](const std::string& kind, const std::string& timeline, DeviceGrid grid,
                       Dividing dividing = {}) -> Combination& {
    Combination c;
    c.kind = kind;
    c.timeline = timeline;
    c.grid = grid;
    c.dividing = dividing;
    return out.emplace_back(c);
  };
  add("dense", "1f1b", {2, 1, 1});
  add("dropout", "zb-h1", {4, 1, 1}).recompute = true;
  add("mixture", "interleaved-1f1b", {2, 1, 1});
  add("dense", "", {1, 4, 1});
  add("dense", "", {1, 4, 1}, {1, Release::Use, ""}).small_buckets = true;
  add("dropout", "gpipe", {2, 2, 1}, {2, Release::Use, ""});
  add("tied", "1f1b", {2, 2, 1}, {3, Release::Pass, "2"}).halves = Halves::Split;
  add("mixture", "dualpipev", {2, 1, 2}, {3, Release::Use, ""}).recompute = true;
  add("mixture_dropout", "", {1, 2, 2}, {1, Release::Use, ""});
  add("two_branch", "dualpipe", {2, 2, 1}, {2, Release::Use, ""});
  std::vector<Case> all;
  for (const Combination& c : out)
    for (const DType gradients : {DType::Float32, DType::BFloat16}) all.push_back({c, gradients});
  return all;
}

class BFloat16 : public testing::TestWithParam<Case> {};

TEST_P(BFloat16, IsAsNearAsItsSumsAllow) {
  const Case& c = GetParam();
  SCOPED_TRACE(c.combination.schedule());
  const Reference& reference = reference_of(c.subject(), c.combination.slices());
  const Trained trained = run(c, [](TrainSettings& settings) { settings.job.run.issue = Issue::Serial; });
  EXPECT_TRUE(trained.copies_equal);
  EXPECT_EQ(trained.masters.size(), trained.moment1.size());
  EXPECT_THAT(wrongly_ordered(trained, reference.run), testing::IsEmpty());
  for (const auto& [name, ordered] : trained.ordered) EXPECT_TRUE(ordered || !c.combination.must_be_ordered()) << name;
  EXPECT_THAT(beyond_rounding(c, trained, reference), testing::IsEmpty());
  EXPECT_NEAR(trained.losses[0], reference.run.losses[0], 1e-12);  // losses are summed in float64
  for (size_t d = 0; d < trained.peak_bytes.size(); ++d) {
    EXPECT_LE(trained.peak_bytes[d], trained.planned_bytes[d]) << d;
    if (c.combination.grid.experts == 1) {
      EXPECT_EQ(trained.peak_bytes[d], trained.serial_bytes[d]) << d;
    }
  }
  const Difference from_float32 = compare(reference.run, in_float32(c.subject(), c.combination.slices()));
  const Difference apart = compare(trained, reference.run);
  EXPECT_LE(apart.error, from_float32.error) << apart.where << ", " << from_float32.where;
}
INSTANTIATE_TEST_SUITE_P(Covering, BFloat16, testing::ValuesIn(every(3, cases())));
INSTANTIATE_TEST_SUITE_P(Thorough, BFloat16, testing::ValuesIn(cases()));

/// The bounds are tight enough for what a compiler or a runtime might do wrong.
TEST(ThoroughBFloat16, FaultsAreBeyondRounding) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.combination.describe());
    const Reference& reference = reference_of(c.subject(), c.combination.slices());
    const Trained scaled = run(c, [](TrainSettings& settings) {
      settings.steps = 1;  // whose gradients are looked at
      settings.plant = [](Plan& plan) { plan.losses *= 2; };
    });
    EXPECT_THAT(beyond_rounding(c, scaled, reference), testing::Not(testing::IsEmpty()));
  }
}

}  // namespace
}  // namespace piper
