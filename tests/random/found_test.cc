// Cases that were wrong, or refused without need, when random schedules found them.
#include <gtest/gtest.h>

#include "random/judge.h"
#include "random/random_case.h"
#include "random/shrink.h"
#include "train_loop/wrappers.h"

namespace piper::random {
namespace {

Case small(std::vector<std::string> directives, Issue issue = Issue::Ahead) {
  return {{"arch = \"llama3\"", "hidden = 16", "heads = 4", "kv_heads = 2", "ffn = 12", "vocab = 32", "seq = 4",
           "layers = 4"},
          {"batch = 8", "optimizer = \"adamw\""},
          std::move(directives),
          issue};
}

void expect_equal(const Case& c) {
  const Verdict verdict = judge(c);
  EXPECT_EQ(verdict.kind, Verdict::Kind::Equal) << verdict.what << "\n" << verdict.details << c.shown();
}

/// Where operations end one by one, as in `piper profile`, its receive has to begin before its send has ended.
TEST(Found, DeviceThatSendsToItself) {
  expect_equal(small({"devices(2)", "split(batch, parts=2, as=mb)", "place({embed=*}, devices=[0, 1])",
                      "place({layer=*}, devices=[0, 1])", "place({head=*}, devices=[1])",
                      "replicate({embed=*}, devices=[0, 1])", "replicate({layer=*}, devices=[0, 1])"},
                     Issue::Serial));
}

/// The layers share tables of positions, which are not trained.
TEST(Found, LevelsOfZeroByLayer) {
  expect_equal(small({"devices(2)", "place({}, devices=[0, 1])", "replicate({embed=*}, devices=[0, 1])",
                      "replicate({layer=0}, devices=[0, 1], zero=1)", "replicate({layer=1..2}, devices=[0, 1], zero=3)",
                      "replicate({layer=3}, devices=[0, 1], zero=2)", "replicate({head=*}, devices=[0, 1], zero=3)"}));
}

TEST(Found, LayersOnGroupsThatOverlap) {
  expect_equal(
      small({"devices(4)", "place({embed=*}, devices=[0])", "place({layer=0..1}, devices=[1, 2])",
             "place({layer=2..3}, devices=[2, 3])", "place({head=*}, devices=[0])",
             "replicate({layer=0..1}, devices=[1, 2], zero=1)", "replicate({layer=2..3}, devices=[2, 3], zero=3)"}));
}

/// Parts of a loss have other last digits than all of it, also where there is one part.
TEST(Found, VocabularyOnOneDevice) {
  expect_equal(small({"mesh(pp=2, tp=1)", "split(batch, parts=4, as=mb)", "place({}, along=pp, stages=2)",
                      "shard({}, along=tp, vocabulary=on)", "use 1f1b(stages=stage, microbatches=mb)"}));
}

TEST(Found, TiedWeightsUnderDirectivesThatSayTheSame) {
  Case c = small({"devices(2)", "place({}, devices=[0, 1])", "replicate({embed=*}, devices=[0, 1], zero=3)",
                  "replicate({layer=*}, devices=[0, 1], zero=1)", "replicate({head=*}, devices=[0, 1], zero=3)"});
  c.model.push_back("tie_embeddings = true");
  expect_equal(c);
}

TEST(Found, RankWhoseDevicesStandInAnotherOrder) {
  expect_equal(small({"devices(4)", "split(batch, parts=2, as=mb)", "place({embed=*}, devices=[0, 1], stage=0)",
                      "place({layer=0}, devices=[1, 0], stage=0)", "place({layer=1}, devices=[2, 3], stage=1)",
                      "place({layer=2}, devices=[1, 0], stage=2)", "place({layer=3}, devices=[3, 2], stage=3)",
                      "place({head=*}, devices=[3, 2], stage=3)", "replicate({}, devices=[0, 1] | [2, 3])",
                      "use interleaved-1f1b(stages=stage, microbatches=mb)"}));
}

/// Which is a dimension of size 1 that still has a number.
TEST(Found, DropoutUnderACutInSlicesOfOneSample) {
  Case c = small({"mesh(tp=2)", "split(batch, parts=8, as=mb)", "place({}, mesh={})", "shard({layer=*}, along=tp)"});
  c.model = {"arch = \"gpt\"", "hidden = 16", "heads = 4",      "vocab = 32",
             "seq = 4",        "ffn = 12",    "dropout = true", "layers = 2"};
  expect_equal(c);
}

/// As a case becomes smaller it loses whatever its fault does not need, but not the numbers that results are judged by.
TEST(Shrink, NumbersStayFloat64) {
  const Case least = shrink(small({"devices(2)"}), "E101", 100);  // no text is E101
  EXPECT_TRUE(least.directives.empty() && least.step.empty()) << least.shown();
  EXPECT_NE(least.shown().find("weights = \"float64\"\ngradients = \"float64\""), std::string::npos);
}

/// The other direction: one computation of one device that is wrong in the sixth digit is seen, whatever the schedule.
TEST(Planted, WrongDigitIsSeen) {
  const auto one_digit = [](TrainSettings& settings) {
    settings.computations = [](Computations& in) {
      return intervene(in, [](const ComputationSite& site, const ComputationArguments& given, const auto& as_usual) {
        as_usual(given);
        if (site.name.starts_with("layer.0") && site.pass == Pass::F && !given.writes.empty() &&
            given.slice.first_sample == 0 && given.writes.back().is_floating_point())
          given.writes.back().mul_(1.000001);
      });
    };
  };
  int planted = 0;
  for (uint64_t seed = 1; planted < 3; ++seed) {
    const Case c = random_case(seed);
    if (judge(c).kind != Verdict::Kind::Equal) continue;
    ++planted;
    EXPECT_EQ(judge(c, one_digit).what, "differs") << "seed " << seed << "\n" << c.shown();
  }
}

}  // namespace
}  // namespace piper::random
