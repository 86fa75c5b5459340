// What a run may change when it goes on, and what it may not.
#include "train/compare_config.h"

#include <gmock/gmock.h>

#include "train/checkpoint_config.h"
#include "train/golden_text.h"

namespace piper {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* saved = R"([model]
arch = "llama3"
hidden = 64
layers = 2
heads = 4
ffn = 128
vocab = 256

[step]
batch = 8
sequence = 32
optimizer = "adamw"

[optimizer]
learning_rate = 3e-3
betas = [0.9, 0.95]

[data]
kind = "text"
paths = ["a.txt"]
)";

std::string with(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

Result<std::vector<std::string>> compared(const std::string& now) {
  return compare_config(make_source("train.toml", now), make_source("step-00000100, configuration", saved));
}

TEST(CompareConfig, ReportsWhatMayChange) {
  EXPECT_THAT(*compared(saved), IsEmpty());
  EXPECT_THAT(*compared(std::string("# a comment\n") + saved), IsEmpty());
  EXPECT_THAT(*compared(with(saved, "3e-3", "1e-3")), ElementsAre("[optimizer] learning_rate: 0.001, was 0.003"));
  EXPECT_THAT(*compared(with(saved, "0.95", "0.99")), ElementsAre("[optimizer] betas: [0.9, 0.99], was [0.9, 0.95]"));
  EXPECT_THAT(*compared(with(saved, "batch = 8\n", "batch = 16\n")), ElementsAre("[step] batch: 16, was 8"));
  EXPECT_THAT(*compared(with(saved, "[data]", "[[optimizer.groups]]\npattern = \"*.norm*\"\nlr_factor = 0.5\n[data]")),
              ElementsAre("[optimizer] groups: [{pattern = \"*.norm*\", lr_factor = 0.5}], was not given"));
  EXPECT_THAT(*compared(with(saved, "a.txt", "b.txt")), ElementsAre("[data] paths: [\"b.txt\"], was [\"a.txt\"]"));
  EXPECT_THAT(*compared(saved + std::string("[run]\nsteps = 5\n")), ElementsAre("[run] steps: 5, was not given"));
}

TEST(CompareConfig, RefusesAnotherModelOrOptimizer) {
  expect_golden("E905_hidden", render(compared(with(saved, "64", "128")).error()));
  for (const auto& [from, to] : {std::pair{"llama3", "qwen3-dense"}, {"adamw", "lion"}, {"\"text\"", "\"tokens\""}})
    EXPECT_EQ(compared(with(saved, from, to)).error().code, ErrorCode::E905) << to;
  EXPECT_EQ(compared(with(saved, "optimizer =", "precision = \"fp32\"\noptimizer =")).error().code, ErrorCode::E905);
}

TEST(CompareConfig, ValuesCountAndNotHowTheyAreWritten) {
  EXPECT_THAT(*compared(with(saved, "optimizer = \"adamw\"\n", "")), IsEmpty());
  const std::string defaults =
      "weights = \"bfloat16\"\ngradients = \"float32\"\nmaster = \"float32\"\nema = false\noptimizer";
  EXPECT_THAT(*compared(with(saved, "optimizer", defaults)), IsEmpty());
  EXPECT_THAT(*compared(with(saved, "optimizer", "precision = \"mixed\"\noptimizer")), IsEmpty());
  EXPECT_THAT(*compared(with(saved, "heads = 4", "heads = 4\nkv_heads = 4\nhead_dim = 16\nqk_norm = false")),
              IsEmpty());
  EXPECT_THAT(*compared(saved + std::string("packing = \"carry\"\nshuffle = \"all\"\n")), IsEmpty());
  const std::string qwen = "[model]\nname = \"Qwen3-8B\"\n";
  const auto both = [](const std::string& now, const std::string& before) {
    return compare_config(make_source("train.toml", now), make_source("before", before));
  };
  EXPECT_THAT(*both(qwen + "layers = 36\n", qwen), IsEmpty());
  EXPECT_EQ(both(qwen + "layers = 35\n", qwen).error().code, ErrorCode::E905);
}

/// The position in the data is a number of samples: it says nothing where a sample is something else.
TEST(CompareConfig, RefusesAnotherOrderOfTheData) {
  expect_golden("E905_sequence", render(compared(with(saved, "sequence = 32", "sequence = 16")).error()));
  const auto one = [](const std::string& file, const std::string& more) {
    return "[[data.sources]]\npaths = [\"" + file + "\"]\n" + more;
  };
  const std::string without = with(saved, "paths = [\"a.txt\"]\n", "");
  const auto sources = [&](const std::string& now, const std::string& before) {
    return compare_config(make_source("train.toml", without + now), make_source("before", without + before));
  };
  expect_golden("E905_sources",
                render(sources(one("a", "") + one("b", "weight = 3.0\n"), one("a", "") + one("b", "")).error()));
  EXPECT_EQ(sources(one("a", "") + one("b", ""), one("a", "")).error().code, ErrorCode::E905);
  EXPECT_TRUE(sources(one("a", "weight = 2.0\n") + one("b", "weight = 2.0\n"), one("a", "") + one("b", "")));
  EXPECT_TRUE(sources(one("a", ""), "paths = [\"a\"]\n"));
  for (const char* key : {"packing = \"truncate\"", "shuffle = 100", "validation = 0.1"})
    EXPECT_EQ(compared(saved + std::string(key) + "\n").error().code, ErrorCode::E905) << key;
}

TEST(CompareConfig, ALongerSampleOfADocumentIsTheSameSample) {
  const auto longer = [](const std::string& text) {
    return compare_config(make_source("train.toml", with(text, "sequence = 32", "sequence = 64")),
                          make_source("before", text));
  };
  const std::string synthetic = with(with(saved, "paths = [\"a.txt\"]\n", ""), "\"text\"", "\"synthetic\"");
  for (const std::string& text : {saved + std::string("packing = \"none\"\n"), synthetic})
    EXPECT_THAT(*longer(text), ElementsAre("[step] sequence: 64, was 32"));
}

TEST(CheckpointInterval, IsStepsOrATime) {
  EXPECT_EQ(parse_interval("500"), (CheckpointInterval{500, 0}));
  EXPECT_EQ(parse_interval("90s"), (CheckpointInterval{0, 90}));
  EXPECT_EQ(parse_interval("10min"), (CheckpointInterval{0, 600}));
  EXPECT_EQ(parse_interval("2h"), (CheckpointInterval{0, 7200}));
  EXPECT_EQ(parse_interval("1d"), (CheckpointInterval{0, 86400}));
  for (const char* wrong : {"", "0", "-5", "min", "1.5h", "10 min", "10minutes", "9999999999999"})
    EXPECT_FALSE(parse_interval(wrong)) << wrong;
}

}  // namespace
}  // namespace piper
