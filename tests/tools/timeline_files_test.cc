// Timelines brought from elsewhere: looked at, converted, and run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "run_piper.h"

namespace piper::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string zb_v =
    "0F0,0F1,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,0I1,0W1\n1F0,2F0,1F1,2F1,2I0,2W0,1I0,1W0,2I1,2W1,1I1,1W1\n";

std::string folder_with_model() {
  const std::string folder = temporary_folder();
  write_file(folder + "/m.toml",
             "[model]\narch = \"llama3\"\nhidden = 64\nlayers = 16\nheads = 4\nffn = 128\nvocab = 128\n[step]\nbatch = "
             "240\nsequence = 16\n");
  write_file(folder + "/zb_v.csv", zb_v);
  return folder;
}

/// Every format that `schedule` prints, but the picture, can be read again and gives the same CSV.
TEST(TimelineFiles, EveryFormatIsReadAgain) {
  const std::string folder = folder_with_model();
  for (const std::string format :
       {"timeline", "csv", "json", "piper", "csv --communication", "timeline --communication"}) {
    const ProgramResult printed = run_piper("schedule --from zb_v.csv --format " + format, folder);
    EXPECT_EQ(printed.exit_code, 0) << printed.errors;
    const std::string file = format == "json" || format == "piper" ? "again." + format : "again";
    write_file(folder + "/" + file, printed.output);
    EXPECT_EQ(run_piper("schedule --from " + file + " --format csv", folder).output, zb_v) << format;
  }
  EXPECT_THAT(run_piper("schedule --from zb_v.csv --format grid", folder).output, HasSubstr("F0 F1 ...f0 i0 w0"));
}

TEST(TimelineFiles, CommunicationIsPutInOnlyOnRequest) {
  EXPECT_EQ(run_piper("schedule gpipe --ranks 2 --microbatches 1 --format csv --communication", "/").output,
            "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
  EXPECT_EQ(run_piper("schedule gpipe --ranks 2 --microbatches 1 --format csv", "/").output, "0F0,0B0\n1F0,1B0\n");
}

TEST(TimelineFiles, WrongOptionsAreUsageErrors) {
  const std::string folder = folder_with_model();
  for (const std::string wrong :
       {"schedule --from zb_v.csv zb-v", "schedule --from zb_v.csv --ranks 2",
        "schedule zb-v --communication --format grid", "check m.toml", "explain m.toml --timeline zb_v.csv"}) {
    const ProgramResult result = run_piper(wrong, folder);
    EXPECT_EQ(result.exit_code, 2) << wrong;
    EXPECT_THAT(result.errors, HasSubstr("--help")) << wrong;
  }
}

TEST(TimelineFiles, AFileAloneIsAPipeline) {
  const std::string folder = folder_with_model();
  EXPECT_EQ(run_piper("compile m.toml --timeline zb_v.csv --emit timeline", folder).output,
            run_piper("schedule --from zb_v.csv", folder).output);
  EXPECT_THAT(run_piper("check m.toml --timeline zb_v.csv", folder).output, HasSubstr("sound: 2 devices"));
  EXPECT_THAT(run_piper("explain m.toml --timeline zb_v.csv embed.F.mb1", folder).output,
              HasSubstr("ordered by -: use file(zb_v.csv, stages=stage, microbatches=mb)"));
}

/// Names in `use file` are found from the folder of the schedule, those of --timeline from where the user is.
TEST(TimelineFiles, AFileOrdersASchedule) {
  const std::string folder = folder_with_model();
  const std::string places =
      "mesh(pp=2, dp=2)\nsplit(batch, parts=2, as=micro)\nplace({}, along=pp, stages=4, shape=v, as=part)\n"
      "replicate({}, along=dp, zero=2)\nrecompute({layer=*})\n";
  std::filesystem::create_directory(folder + "/schedules");
  write_file(folder + "/places.piper", places);
  write_file(folder + "/schedules/zb_v.csv", zb_v);
  write_file(folder + "/schedules/s.piper", places + "use file(\"zb_v.csv\", stages=part, microbatches=micro)\n");
  const ProgramResult inside = run_piper("compile m.toml schedules/s.piper --emit dag", folder);
  EXPECT_EQ(inside.exit_code, 0) << inside.errors;
  EXPECT_EQ(run_piper("compile m.toml places.piper --timeline zb_v.csv --emit timeline", folder).output,
            run_piper("schedule --from zb_v.csv", folder).output);
  const ProgramResult twice = run_piper("check m.toml schedules/s.piper --timeline zb_v.csv", folder);
  EXPECT_EQ(twice.exit_code, 1);
  EXPECT_THAT(twice.errors,
              StartsWith("schedules/s.piper:6:1: error[E303]: use orders the step, and so does --timeline"));
}

TEST(TimelineFiles, MistakesNameCellRankAndReason) {
  const std::string folder = folder_with_model();
  write_file(folder + "/bad.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  for (const std::string command : {"schedule --from bad.csv", "check m.toml --timeline bad.csv"}) {
    const ProgramResult result = run_piper(command, folder);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.errors, StartsWith("bad.csv:1:5: error[E314]: deadlock: 0B0 at rank 0, cell 1 waits for 1B0"));
  }
  EXPECT_THAT(run_piper("schedule --from none.csv", folder).errors, HasSubstr("error[E108]"));
}

/// PyTorch's own files run as they are, with and without communication.
TEST(TimelineFiles, PyTorchsFilesCompileToThemselves) {
  const std::filesystem::path oracles = PIPER_SOURCE_DIR "/../shared/oracles/schedules/torch";
  if (!std::filesystem::exists(oracles)) GTEST_SKIP() << "no published timelines beside the project";
  const std::string folder = folder_with_model();
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(oracles)) {
    const std::string file = entry.path().string();
    if (file.find("_4rank_") == file.npos) continue;  // the others are alike
    const ProgramResult compiled =
        run_piper("compile m.toml --batch 240 --timeline '" + file + "' --emit timeline", folder);
    EXPECT_EQ(compiled.exit_code, 0) << file << compiled.errors;
    EXPECT_EQ(compiled.output, run_piper("schedule --from '" + file + "'", folder).output) << file;
    ++files;
  }
  EXPECT_GE(files, 30);
}

}  // namespace
}  // namespace piper::testing
