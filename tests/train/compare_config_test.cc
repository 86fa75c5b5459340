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

[step]
batch = 8
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
  for (const auto& [from, to] : {std::pair{"llama3", "gpt"}, {"adamw", "sgd"}, {"\"text\"", "\"synthetic\""}})
    EXPECT_EQ(compared(with(saved, from, to)).error().code, ErrorCode::E905) << to;
  EXPECT_EQ(compared(with(saved, "hidden = 64\n", "")).error().code, ErrorCode::E905);
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
