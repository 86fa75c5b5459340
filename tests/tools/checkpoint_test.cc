// `piper checkpoint`: every command, as text and as JSON, and its exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/sample_folder.h"
#include "run_piper.h"

namespace piper::testing {
namespace {

namespace fs = std::filesystem;
using checkpoint_tests::flip;
using checkpoint_tests::save;
using checkpoint_tests::small_layout;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const std::string model_file = "/model-00001-of-00001.safetensors";

/// A folder `run` with the checkpoints of steps 1000 and 2000.
std::string folder_with_run() {
  const std::string folder = temporary_folder();
  for (const int64_t step : {1000, 2000}) save(folder + "/run", step, small_layout());
  return folder;
}

TEST(CheckpointCommand, List) {
  const std::string folder = folder_with_run();
  fs::create_directory(folder + "/run/step-00003000.partial");
  fs::create_directory(folder + "/run/step-00004000");
  const ProgramResult result = run_piper("checkpoint list run", folder);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.output, R"(checkpoint     samples    loss   size  problem
step-00001000    32000  0.3333  703 B
step-00002000    64000  0.3333  703 B
step-00004000        -       -      -  run/step-00004000 is not a checkpoint: it has no piper.json
)");
  const Json json = Json::parse(run_piper("checkpoint list run --format json", folder).output);
  EXPECT_EQ(json["version"], 1);
  ASSERT_EQ(json["checkpoints"].size(), 3u);
  EXPECT_EQ(json["checkpoints"][1]["step"], 2000);
  EXPECT_EQ(json["checkpoints"][1]["problem"], nullptr);
  EXPECT_EQ(json["checkpoints"][2]["problem"]["code"], "E901");
  EXPECT_EQ(run_piper("checkpoint list .", folder).output, "no checkpoints in .\n");
  const ProgramResult none = run_piper("checkpoint list none", folder);
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.errors, HasSubstr("error[E901]: cannot look for checkpoints in none: No such file or directory"));
}

TEST(CheckpointCommand, Show) {
  const std::string folder = folder_with_run();
  const ProgramResult result = run_piper("checkpoint show run/step-00001000", folder);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(
      result.output,
      HasSubstr(R"(step 1000: 32000 samples, 1000 updates, loss 0.3333333333333333, learning rate 0.0003, seed 17
plan 36e103b48ffcbb93, written by piper )"));
  EXPECT_THAT(result.output, HasSubstr(R"(
tensor                dtype  shape   file
embed.weight          F32    [4, 8]  model-00001-of-00001.safetensors
head.bias             BF16   [3]     model-00001-of-00001.safetensors
embed.weight.exp_avg  F32    [4, 8]  optimizer-00001-of-00001.safetensors
)"));
  const Json json = Json::parse(run_piper("checkpoint show run/step-00001000 --format json", folder).output);
  EXPECT_EQ(json["state"]["loss"], 1.0 / 3);
  EXPECT_EQ(json["state"]["configuration"], "[model]\nhidden = 8\n");
  EXPECT_EQ(json["files"][0]["tensors"][1]["shape"], Json({3}));
  const ProgramResult none = run_piper("checkpoint show run", folder);
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.errors, HasSubstr("error[E901]: run is not a checkpoint: it has no piper.json"));
}

TEST(CheckpointCommand, Verify) {
  const std::string folder = folder_with_run();
  const ProgramResult sound = run_piper("checkpoint verify run", folder);
  EXPECT_EQ(sound.exit_code, 0) << sound.errors;
  EXPECT_EQ(sound.output, "run/step-00001000: sound, 703 B in 3 files\nrun/step-00002000: sound, 703 B in 3 files\n");
  const int64_t bias = small_layout()->find("head.bias")->entry.begin;
  flip(folder + "/run/step-00002000" + model_file, bias, 0);
  const ProgramResult damaged = run_piper("checkpoint verify run", folder);
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.output, HasSubstr("run/step-00001000: sound"));
  EXPECT_THAT(damaged.output, HasSubstr("run/step-00002000: damaged"));
  EXPECT_THAT(damaged.errors, HasSubstr("error[E902]: run/step-00002000" + model_file + ": bytes 0 to 310"));
  EXPECT_EQ(run_piper("checkpoint verify run/step-00001000/", folder).exit_code, 0);
  const Json json = Json::parse(run_piper("checkpoint verify run --format json", folder).output);
  EXPECT_EQ(json["sound"], false);
  EXPECT_EQ(json["checkpoints"][0]["sound"], true);
  EXPECT_EQ(json["checkpoints"][1]["problems"][0]["code"], "E902");
  const ProgramResult none = run_piper("checkpoint verify .", folder);
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.errors, HasSubstr("error[E901]: . is not a checkpoint, and there is none in it"));
  EXPECT_EQ(run_piper("checkpoint verify run/step-00005000", folder).exit_code, 1);
}

TEST(CheckpointCommand, Diff) {
  const std::string folder = folder_with_run();
  const ProgramResult same = run_piper("checkpoint diff run/step-00001000 run/step-00001000", folder);
  EXPECT_EQ(same.exit_code, 0) << same.errors;
  EXPECT_EQ(same.output, "3 of 3 common tensors are equal\n");
  const ProgramResult other = run_piper("checkpoint diff run/step-00001000 run/step-00002000", folder);
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.output, HasSubstr("tensor                differing elements  largest difference\n"));
  EXPECT_THAT(other.output, HasSubstr("0 of 3 common tensors are equal\n"));
  const Json json =
      Json::parse(run_piper("checkpoint diff run/step-00001000 run/step-00002000 --format json", folder).output);
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["values"].size(), 3u);
  EXPECT_EQ(json["values"][0]["name"], "embed.weight");
  EXPECT_EQ(run_piper("checkpoint diff run/step-00001000 run", folder).exit_code, 1);
}

TEST(CheckpointCommand, ExportAndDiffWithTheCheckpoint) {
  const std::string folder = folder_with_run();
  const ProgramResult result = run_piper("checkpoint export run/step-00001000 -o model", folder);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(fs::exists(folder + "/model" + model_file));
  EXPECT_FALSE(fs::exists(folder + "/model/piper.json"));
  EXPECT_EQ(run_piper("checkpoint diff run/step-00001000 model", folder).output,
            "only in the first: embed.weight.exp_avg\n2 of 2 common tensors are equal\n");
  EXPECT_THAT(run_piper("checkpoint show model", folder).output, HasSubstr("embed.weight  F32"));
  const ProgramResult again = run_piper("checkpoint export run/step-00001000 -o model", folder);
  EXPECT_EQ(again.exit_code, 3);
  EXPECT_THAT(again.errors, HasSubstr("error[E903]: cannot write model: Directory not empty"));
  flip(folder + "/run/step-00002000" + model_file, 300, 0);
  EXPECT_EQ(run_piper("checkpoint export run/step-00002000 -o other", folder).exit_code, 1);
  EXPECT_FALSE(fs::exists(folder + "/other"));
}

}  // namespace
}  // namespace piper::testing
