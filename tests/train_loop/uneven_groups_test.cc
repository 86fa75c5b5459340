// Groups of different size: every chunk on slices of its own group, values cut anew between them; and the reference
// itself against chunks that run without any plan.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "capture/record/annotate.h"
#include "every.h"
#include "train_loop/one_by_one.h"
#include "train_loop/subjects.h"

namespace piper {
namespace {

constexpr int layers = 4;

TEST(OneDevice, IsTheChunksOneAfterTheOther) {
  for (const std::string& kind : subject_kinds())
    for (const int64_t slices : {4, 8}) {
      SCOPED_TRACE(fmt::format("{} in {} slices", kind, slices));
      const Subject subject{kind, layers};
      const CapturedModel& model = captured(subject, {subject_batch / slices});
      auto compiled = compile_for(model, in_turn(slices));
      ASSERT_TRUE(compiled) << render(compiled.error());
      const Difference worst =
          compare(reference(subject, slices),
                  train_one_by_one(model_of(subject), model, compiled->plan, usual_settings(subject)));
      EXPECT_LE(worst.error, 1e-13) << worst.where;
    }
}

/// A part of the model on devices of its own.
struct Part {
  std::vector<std::string> scopes;
  std::string devices;
  int size;
  int zero;
};

struct Uneven {
  std::string name, kind;
  int devices, microbatches;
  std::vector<Part> parts;
  std::string more;  // directives
  /// Its chunks compute every sample by itself, so that slices of any size give the same sums.
  bool sample_by_sample = true;
  int64_t batch = subject_batch;

  std::string schedule() const {
    std::string out = fmt::format("devices({})\nsplit(batch, parts={}, as=mb)\n", devices, microbatches);
    for (size_t i = 0; i < parts.size(); ++i)
      for (const std::string& scope : parts[i].scopes)
        out += fmt::format("place({{{}}}, devices={}, stage={})\n", scope, parts[i].devices, i);
    for (const Part& part : parts)
      for (const std::string& scope : part.scopes)
        if (part.size > 1)
          out += fmt::format("replicate({{{}}}, devices={}, zero={}, bucket=1KB)\n", scope, part.devices, part.zero);
    return out + more;
  }
  Subject subject() const { return {kind, layers, DType::Float64, Optimizer::AdamW, batch}; }
  std::vector<int64_t> samples() const {
    std::set<int64_t> out;
    for (const Part& part : parts) out.insert(batch / microbatches / part.size);
    return {out.begin(), out.end()};
  }
};
void PrintTo(const Uneven& uneven, std::ostream* out) {
  *out << uneven.name;
}

const std::string pipelined = "use 1f1b(stages=stage, microbatches=mb)\n";

std::vector<Uneven> all() {
  const std::vector<Part> narrowing = {
      {{"embed=*", "layer=0..1"}, "[0, 1]", 2, 1}, {{"layer=2"}, "[2]", 1, 0}, {{"layer=3", "head=*"}, "[3]", 1, 0}};
  const std::vector<Part> widening = {
      {{"embed=*", "layer=0"}, "[0]", 1, 0}, {{"layer=1"}, "[1]", 1, 0}, {{"layer=2..3", "head=*"}, "[2, 3]", 2, 3}};
  const std::vector<Part> waist = {{{"embed=*", "layer=0"}, "[0..3]", 4, 3},
                                   {{"layer=1..2"}, "[4, 5]", 2, 2},
                                   {{"layer=3", "head=*"}, "[6, 7]", 2, 0}};
  const std::vector<Part> belly = {{{"embed=*", "layer=0"}, "[0, 1]", 2, 1},
                                   {{"layer=1..2"}, "[2..5]", 4, 2},
                                   {{"layer=3", "head=*"}, "[6, 7]", 2, 3}};
  // three devices cut a part of the batch into three slices: see the batch of these
  const std::vector<Part> one_to_four = {{{"embed=*", "layer=0"}, "[0]", 1, 0},
                                         {{"layer=1"}, "[1, 2]", 2, 1},
                                         {{"layer=2"}, "[3..5]", 3, 2},
                                         {{"layer=3", "head=*"}, "[6..9]", 4, 3}};
  const std::vector<Part> three_to_one = {
      {{"embed=*", "layer=0"}, "[0..2]", 3, 3}, {{"layer=1..2"}, "[3, 4]", 2, 0}, {{"layer=3", "head=*"}, "[5]", 1, 0}};
  const std::string decoder = ", left=none, right=none";
  const std::vector<Part> branches = {{{"left=*"}, "[0]", 1, 0},
                                      {{"right=*"}, "[1]", 1, 0},
                                      {{"join=*", "embed=*" + decoder, "layer=*" + decoder}, "[2, 3]", 2, 1},
                                      {{"head=*"}, "[4]", 1, 0}};
  const std::vector<Part> wide_branches = {{{"left=*"}, "[0, 1]", 2, 2},
                                           {{"right=*", "join=*"}, "[2..5]", 4, 1},
                                           {{"embed=*" + decoder, "layer=*" + decoder, "head=*"}, "[6]", 1, 0}};
  return {
      {"branches", "two_branch", 5, 4, branches, "", false},
      {"branches_1f1b", "two_branch", 5, 4, branches, pipelined, false},
      {"wide_branches", "two_branch", 7, 2, wide_branches, "recompute({left=*})\n", false},
      {"one_to_four", "dense", 10, 2, one_to_four, "", true, 24},
      {"one_to_four_1f1b", "tied", 10, 2, one_to_four, pipelined, true, 24},
      {"three_to_one", "tied", 6, 4, three_to_one, pipelined, true, 24},
      {"narrowing_mixture", "mixture", 4, 4, narrowing, pipelined, false},
      {"widening_mixture", "mixture", 4, 4, widening, "", false},
      {"narrowing", "dense", 4, 4, narrowing, ""},
      {"narrowing_1f1b", "dense", 4, 4, narrowing, pipelined},
      {"widening", "dense", 4, 4, widening, ""},
      {"widening_zero_bubble", "tied", 4, 4, widening, "use zb-h1(stages=stage, microbatches=mb)\n"},
      {"waist", "dense", 8, 4, waist, pipelined},
      {"waist_tied", "tied", 8, 4, waist, pipelined},
      {"waist_recomputed", "dropout", 8, 2, waist, "recompute({layer=*})\n" + pipelined, false},
      {"belly", "tied", 8, 2, belly, ""},
      {"belly_dropout", "dropout", 8, 4, belly, pipelined, false},
      {"belly_experts", "mixture_plain", 8, 2, belly,
       "shard({layer=1..2, experts=*}, devices=[2..5])\nshard({layer=3, experts=*}, devices=[6, 7])\n" + pipelined,
       false},
  };
}

class UnevenGroups : public testing::TestWithParam<Uneven> {};

TEST_P(UnevenGroups, EqualTheReference) {
  const Uneven& uneven = GetParam();
  SCOPED_TRACE(uneven.schedule());
  const Subject subject = uneven.subject();
  const CapturedModel& model = captured(subject, uneven.samples());
  auto compiled = compile_for(model, uneven.schedule());
  ASSERT_TRUE(compiled) << render(compiled.error());
  const auto plan = std::make_shared<const Plan>(compiled->plan);
  TrainSettings settings = usual_settings(subject);
  const Trained run = train(model_of(subject), model, plan, settings);
  EXPECT_EQ(run.devices, uneven.devices);
  EXPECT_TRUE(run.copies_equal);
  const Difference worst = compare(run, train_one_by_one(model_of(subject), model, *plan, settings));
  EXPECT_LE(worst.error, 1e-12) << worst.where;
  if (uneven.sample_by_sample) {
    const Difference usual = compare(run, reference(subject, uneven.microbatches));
    EXPECT_LE(usual.error, 1e-12) << usual.where;
  }
  settings.job.run.issue = Issue::Serial;
  const Trained serial = train(model_of(subject), model, plan, settings);
  EXPECT_EQ(compare(serial, run).error, 0) << compare(serial, run).where;
  for (size_t d = 0; d < serial.peak_bytes.size(); ++d) EXPECT_LE(serial.peak_bytes[d], serial.planned_bytes[d]) << d;
}
INSTANTIATE_TEST_SUITE_P(Some, UnevenGroups, testing::ValuesIn(every(3, all())),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Thorough, UnevenGroups, testing::ValuesIn(all()),
                         [](const auto& info) { return info.param.name; });

void expect_not_cut(const CapturedModel& model, const std::string& schedule) {
  auto compiled = compile_for(model, schedule);
  ASSERT_FALSE(compiled);
  EXPECT_EQ(name(compiled.error().code), "E311") << render(compiled.error());
}

/// Two scopes, the first on twice as many devices, and what goes from one to the other.
void expect_not_cut(const std::function<at::Tensor(const at::Tensor& x)>& leave,
                    const std::function<at::Tensor(const at::Tensor& value)>& enter) {
  const at::Tensor weight = at::empty({4, 4}, at::TensorOptions(at::kMeta)).set_requires_grad(true);
  const MetaModel meta{{{"weight", weight}}, {}, {}, [&](const std::vector<at::Tensor>& inputs) {
                         at::Tensor value;
                         {
                           const annotate scope("first");
                           value = leave(inputs[0].matmul(weight));
                         }
                         const annotate scope("second");
                         return enter(value).square().mean();
                       }};
  CaptureOptions options;
  options.step.batch = 8;
  options.inputs = {{"x", DType::Float32, {3, 4}}};
  options.samples = {2, 4};
  auto model = capture(meta, options);
  ASSERT_TRUE(model) << render(model.error());
  expect_not_cut(*model,
                 "devices(3)\nsplit(batch, parts=2, as=mb)\nplace({first=*}, devices=[0, 1])\n"
                 "place({second=*}, devices=[2])\nreplicate({first=*}, devices=[0, 1])\n");
}

/// A sum over the samples of a slice.
TEST(UnevenGroups, ValueWithoutSamplesIsRefused) {
  expect_not_cut([](const at::Tensor& x) { return x.mean(0); }, [](const at::Tensor& mean) { return mean; });
}

/// Tokens of all samples, one after another: the first of all samples, then the second of all.
TEST(UnevenGroups, MergedSamplesAreRefused) {
  expect_not_cut(
      [](const at::Tensor& x) {
        return x.transpose(0, 1).reshape({-1, 4}).relu();
      },
      [](const at::Tensor& tokens) {
        return tokens.view({3, -1, 4}).cumsum(0);
      });
}

/// What experts get has slots, in which tokens of any sample may be.
TEST(UnevenGroups, SlotsOfExpertsAreRefused) {
  const Uneven uneven{
      "",
      "mixture",
      3,
      4,
      {{{"embed=*", "layer=*, experts=none"}, "[0, 1]", 2, 0}, {{"layer=*, experts=*", "head=*"}, "[2]", 1, 0}},
      ""};
  expect_not_cut(captured(uneven.subject(), uneven.samples()), uneven.schedule());
}

}  // namespace
}  // namespace piper
