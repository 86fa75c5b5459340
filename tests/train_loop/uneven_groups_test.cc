// Groups of different size: every chunk on slices of its own group, values cut anew between them; and the reference
// itself against chunks that run without any plan.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

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
      EXPECT_THAT(complaints(first_step(reference(subject, slices)),
                             step_one_by_one(model_of(subject), model, compiled->plan), 1e-14),
                  testing::IsEmpty());
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
  std::vector<int64_t> samples() const {
    std::set<int64_t> out;
    for (const Part& part : parts) out.insert(subject_batch / microbatches / part.size);
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
  const std::vector<Part> branches = {{{"left=*"}, "[0]", 1, 0},
                                      {{"right=*"}, "[1]", 1, 0},
                                      {{"embed=*", "layer=*"}, "[2, 3]", 2, 1},
                                      {{"head=*"}, "[4]", 1, 0}};
  return {
      {"branches", "two_branch", 5, 4, branches, "", false},
      {"branches_1f1b", "two_branch", 5, 4, branches, pipelined, false},
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
  const Subject subject{uneven.kind, layers};
  const CapturedModel& model = captured(subject, uneven.samples());
  auto compiled = compile_for(model, uneven.schedule());
  ASSERT_TRUE(compiled) << render(compiled.error());
  const auto plan = std::make_shared<const Plan>(compiled->plan);
  TrainSettings settings = usual_settings(subject);
  settings.job.patience_seconds = 60;
  const Trained run = train(model_of(subject), model, plan, settings);
  EXPECT_EQ(run.devices, uneven.devices);
  EXPECT_TRUE(run.copies_equal);
  const Difference first = compare(first_step(run), step_one_by_one(model_of(subject), model, *plan));
  EXPECT_LE(first.error, 1e-12) << first.where;
  if (uneven.sample_by_sample) {
    const Difference all = compare(run, reference(subject, uneven.microbatches));
    EXPECT_LE(all.error, 1e-12) << all.where;
  }
  settings.job.run.issue = Issue::Serial;
  const Trained serial = train(model_of(subject), model, plan, settings);
  EXPECT_EQ(compare(serial, run).error, 0) << compare(serial, run).where;
  for (size_t d = 0; d < serial.peak_bytes.size(); ++d) EXPECT_LE(serial.peak_bytes[d], serial.planned_bytes[d]) << d;
}
INSTANTIATE_TEST_SUITE_P(All, UnevenGroups, testing::ValuesIn(all()), [](const auto& info) { return info.param.name; });

/// A value without samples, here what a mixture adds to the loss, cannot be cut anew.
TEST(UnevenGroups, ValueWithoutSamplesIsRefused) {
  const Uneven uneven{"", "mixture", 4, 4, {{{"embed=*", "layer=*"}, "[0, 1]", 2, 0}, {{"head=*"}, "[2]", 1, 0}}, ""};
  const Subject subject{uneven.kind, layers};
  auto compiled = compile_for(captured(subject, uneven.samples()), uneven.schedule());
  ASSERT_FALSE(compiled);
  EXPECT_EQ(name(compiled.error().code), "E311") << render(compiled.error());
}

}  // namespace
}  // namespace piper
