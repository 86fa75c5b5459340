// Metrics as JSON lines, and the progress line.
#include "train/metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "train/golden_text.h"
#include "train/in_empty_folder.h"
#include "train/progress.h"

namespace piper {
namespace {

using testing::HasSubstr;

const RunDescription run = {.model = "a \"small\" one",
                            .schedule = "s.piper",
                            .plan_hash = "0123456789abcdef",
                            .parameters = 1'000'000,
                            .devices = 4,
                            .batch = 16,
                            .sequence = 128,
                            .steps = 2,
                            .seed = 7,
                            .data = "8 files",
                            .predicted_seconds = 0.125};

StepMetrics step_of(int64_t step, double loss, double seconds) {
  return {.step = step,
          .loss = loss,
          .gradient_norm = 1.5,
          .learning_rate = 1e-5,
          .seconds = seconds,
          .tokens = 2048,
          .data_seconds = 0.5,
          .peak_bytes = 4096};
}

NamedFile in_configuration(const std::string& path) {
  const std::string text = "[run]\nmetrics = \"" + path + "\"\n";
  return {path, {make_source("config.toml", text), 16, static_cast<int>(text.size()) - 1}};
}

class Metrics : public InEmptyFolder {};

TEST_F(Metrics, EveryLineIsThereWhenAddReturns) {
  auto file = MetricsFile::create({"m.jsonl", {}}, run);
  ASSERT_TRUE(file);
  const auto lines = [] {
    std::ifstream in("m.jsonl");
    std::vector<nlohmann::json> out;
    for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
    return out;
  };
  EXPECT_EQ(lines().size(), 1u);
  ASSERT_TRUE(file->add(step_of(0, 0.1, 0.25)));
  StepMetrics bad = step_of(1, NAN, 0.25);
  bad.gradient_norm = INFINITY;
  bad.skipped = true;
  ASSERT_TRUE(file->add(bad));
  const auto read = lines();
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0], nlohmann::json::parse(
                         R"({"format": "piper-metrics", "version": 1, "model": "a \"small\" one", "schedule": "s.piper",
    "plan_hash": "0123456789abcdef", "parameters": 1000000, "devices": 4, "batch": 16, "sequence": 128, "steps": 2, "seed": 7,
    "data": "8 files", "predicted_seconds": 0.125})"));
  EXPECT_EQ(read[1], nlohmann::json::parse(
                         R"({"step": 0, "loss": 0.1, "gradient_norm": 1.5, "learning_rate": 1e-5, "seconds": 0.25,
    "tokens": 2048, "tokens_per_second": 8192, "skipped": false, "mfu": null, "predicted_seconds": null,
    "data_seconds": 0.5, "peak_bytes": 4096})"));
  EXPECT_TRUE(read[2]["loss"].is_null());
  EXPECT_TRUE(read[2]["gradient_norm"].is_null());
  EXPECT_EQ(read[2]["skipped"], true);
}

TEST_F(Metrics, EvaluationsAreLinesOfTheirOwn) {
  EvaluationMetrics found{
      .steps = 100, .loss = 2.5, .perplexity = 12.182493960703473, .batches = 8, .tokens = 16384, .seconds = 0.5};
  EXPECT_EQ(nlohmann::json::parse(print_json(found)),
            nlohmann::json::parse(R"({"evaluation": {"steps": 100, "loss": 2.5, "perplexity": 12.182493960703473,
    "batches": 8, "tokens": 16384, "seconds": 0.5}})"));
  EXPECT_EQ(print_line(found), "evaluation after 100 steps: loss 2.5000, perplexity 12.18 (8 batches)\n");
  found.reported.named = {{"aux_loss", 1.25}};
  EXPECT_THAT(print_json(found), HasSubstr("\"seconds\": 0.5, \"metric.aux_loss\": 1.25}}\n"));
  EXPECT_EQ(print_line(found),
            "evaluation after 100 steps: loss 2.5000, perplexity 12.18, aux_loss 1.25 (8 batches)\n");
  EXPECT_EQ(scalars_of(found).back().name, "evaluation.metric.aux_loss");
  found.samples = {{"Once", " \xc3"}, {"It is", " 1\n"}};  // cut off inside a character
  EXPECT_THAT(print_json(found), HasSubstr(R"(, "samples": [{"prompt": "Once", "text": " \ufffd"}, )"));
  EXPECT_THAT(print_line(found), HasSubstr("(8 batches)\n  \"Once\" -> \" \\ufffd\"\n  \"It is\" -> \" 1\\u000a\"\n"));
  found = {.steps = 1, .loss = 1000, .perplexity = INFINITY, .batches = 1};
  EXPECT_THAT(print_json(found), HasSubstr("\"perplexity\": null"));
  EXPECT_EQ(print_line(found), "evaluation after 1 step: loss 1000.0000, perplexity inf (1 batch)\n");
}

TEST_F(Metrics, WhatTheModelSays) {
  StepMetrics step = step_of(0, 0.1, 0.25);
  step.reported.named = {{"aux_loss", 1.5}, {"a \"b\"", NAN}};
  const auto line = nlohmann::json::parse(print_json(step));
  EXPECT_EQ(line["metric.aux_loss"], 1.5);
  EXPECT_TRUE(line["metric.a \"b\""].is_null());
  std::vector<std::string> names;
  for (const NamedScalar& of : scalars_of(step)) names.push_back(of.name);
  EXPECT_THAT(names, testing::IsSupersetOf({"loss", "metric.aux_loss"}));
}

TEST_F(Metrics, LossesKeepAllTheirDigits) {
  const double loss = 5.545177444479562;
  EXPECT_EQ(nlohmann::json::parse(print_json(step_of(0, loss, 1)))["loss"].get<double>(), loss);
}

TEST_F(Metrics, WhatCannotBeWritten) {
  if (std::filesystem::exists("/dev/full")) {
    auto full = MetricsFile::create(in_configuration("/dev/full"), run);
    ASSERT_FALSE(full);
    expect_golden("E108_disk_full", render(full.error()));
  }
  auto nowhere = MetricsFile::create(in_configuration("no/folder/m.jsonl"), run);
  ASSERT_FALSE(nowhere);
  expect_golden("E108_no_folder", render(nowhere.error()));
}

TEST_F(Metrics, FurtherRunsAreAddedToMetricsOnly) {
  const auto lines = [] {
    std::ifstream in("m.jsonl");
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  };
  ASSERT_TRUE(MetricsFile::create({"m.jsonl", {}}, run)->add(step_of(0, 1, 1)));
  const std::vector<std::string> first = lines();
  std::ofstream("m.jsonl", std::ios::app) << "{\"step\": 1, \"lo";  // the run was killed
  ASSERT_TRUE(MetricsFile::create({"m.jsonl", {}}, run)->add(step_of(0, 2, 1)));
  const std::vector<std::string> both = lines();
  ASSERT_EQ(both.size(), 5u);
  EXPECT_EQ(std::vector(both.begin(), both.begin() + 2), first);
  EXPECT_EQ(both[3], first[0]);

  std::ofstream("notes.txt") << "not to be lost\n";
  auto notes = MetricsFile::create(in_configuration("notes.txt"), run);
  ASSERT_FALSE(notes);
  expect_golden("E108_not_metrics", render(notes.error()));
  std::ifstream in("notes.txt");
  std::string text;
  std::getline(in, text, '\0');
  EXPECT_EQ(text, "not to be lost\n");
}

TEST_F(Metrics, ADiskThatFillsDuringTheRun) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  auto file = MetricsFile::create({"m.jsonl", {}}, run);
  ASSERT_TRUE(file);
  // the same open file now leads to a full disk
  std::FILE* full = std::fopen("/dev/full", "wb");
  ASSERT_NE(full, nullptr);
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry, ignored) == std::filesystem::absolute("m.jsonl"))
      ::dup2(::fileno(full), std::stoi(entry.path().filename().string()));
  }
  auto added = file->add(step_of(0, 1, 1));
  std::fclose(full);
  ASSERT_FALSE(added);
  EXPECT_THAT(render(added.error()), HasSubstr("cannot write metrics \"m.jsonl\": No space left on device"));
}

// ---- the progress line

class Progress : public testing::Test {
 protected:
  std::string output() {
    std::fflush(out_);
    return std::string(text_, size_);
  }
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* out_ = ::open_memstream(&text_, &size_);
  void TearDown() override {
    std::fclose(out_);
    std::free(text_);
  }
};

TEST_F(Progress, LinesComeEveryFewSeconds) {
  ProgressLine line(out_, ProgressStyle::Lines, 100);
  for (int64_t step = 0; step < 100; ++step)
    line.show(step_of(step, 4.0 - 0.01 * static_cast<double>(step), 0.2), 0.2 * static_cast<double>(step));
  line.finish();
  EXPECT_EQ(output(),
            "step   1/100  loss 4.0000  norm 1.5  rate 1.00e-05  10.2k tokens/s  20 s left\n"
            "step  26/100  loss 3.7500  norm 1.5  rate 1.00e-05  10.2k tokens/s  15 s left\n"
            "step  51/100  loss 3.5000  norm 1.5  rate 1.00e-05  10.2k tokens/s  10 s left\n"
            "step  76/100  loss 3.2500  norm 1.5  rate 1.00e-05  10.2k tokens/s  5 s left\n"
            "step 100/100  loss 3.0100  norm 1.5  rate 1.00e-05  10.2k tokens/s  done\n");
}

TEST_F(Progress, ATerminalSeesOneLine) {
  ProgressLine line(out_, ProgressStyle::Overwrite, 100, 30);
  line.show(step_of(0, 4, 0.2), 0);
  line.show(step_of(1, 3, 0.2), 0.01);  // too soon
  line.show(step_of(2, 2, 0.2), 0.2);
  line.finish();
  EXPECT_EQ(output(), "\rstep   1/100  loss 4.0000  no\x1b[K\rstep   3/100  loss 2.0000  no\x1b[K\n");
}

TEST_F(Progress, ARunThatFailsEndsTheLine) {
  try {
    ProgressLine line(out_, ProgressStyle::Overwrite, 100, 30);
    line.show(step_of(0, 4, 0.2), 0);
    line.show(step_of(1, 3, 0.2), 0.01);  // too soon
    throw std::runtime_error("step 2");
  } catch (const std::runtime_error&) {
    std::fputs("error", out_);
  }
  EXPECT_EQ(output(), "\rstep   1/100  loss 4.0000  no\x1b[K\rstep   2/100  loss 3.0000  no\x1b[K\nerror");
}

TEST_F(Progress, WhatWasNotShownIsShownAtTheEnd) {
  ProgressLine line(out_, ProgressStyle::Lines, 100);
  line.finish();
  EXPECT_EQ(output(), "");
  line.show(step_of(0, 4, 0.2), 0);
  line.show(step_of(1, NAN, 0.2), 0.2);
  line.finish();
  line.finish();
  EXPECT_THAT(output(), HasSubstr("\nstep   2/100  loss nan  norm"));
  EXPECT_EQ(std::count(text_, text_ + size_, '\n'), 2);
}

TEST_F(Progress, TheSlowFirstStepDoesNotCount) {
  ProgressLine line(out_, ProgressStyle::Lines, 11);
  line.show(step_of(0, 4, 100), 100);
  line.show(step_of(1, 4, 10), 110);
  EXPECT_THAT(output(), HasSubstr("16 min 40 s left\n"));
  EXPECT_THAT(output(), HasSubstr("1 min 30 s left\n"));
}

TEST(ProgressText, TimesAndCounts) {
  EXPECT_EQ(time_left_text(-3), "0 s");
  EXPECT_EQ(time_left_text(59.6), "1 min 00 s");
  EXPECT_EQ(time_left_text(185), "3 min 05 s");
  EXPECT_EQ(time_left_text(7440), "2 h 04 min");
  EXPECT_EQ(time_left_text(5 * 86400 + 3 * 3600), "5 d 03 h");
  EXPECT_EQ(short_count(0), "0");
  EXPECT_EQ(short_count(987), "987");
  EXPECT_EQ(short_count(999.7), "1.00k");
  EXPECT_EQ(short_count(12345), "12.3k");
  EXPECT_EQ(short_count(123456), "123k");
  EXPECT_EQ(short_count(4.56e6), "4.56M");
}

}  // namespace
}  // namespace piper
