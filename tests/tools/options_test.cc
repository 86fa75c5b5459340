// What options are given: numbers that are none, and outputs that would take the place of inputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run_piper.h"

namespace piper::testing {
namespace {

using ::testing::HasSubstr;

const std::string full_inputs = root + "/examples/moe.toml " + root + "/examples/dualpipe.piper";

TEST(Options, NumbersAreNumbersToTheLastCharacter) {
  const std::string folder = temporary_folder();
  write_file(folder + "/c.toml", "");
  for (const std::string wrong : {"train c.toml --timeout nan",
                                  "train c.toml --timeout inf",
                                  "train c.toml --timeout 0",
                                  "train c.toml --timeout 5s",
                                  "train c.toml --seed -1",
                                  "train c.toml --seed 1.5",
                                  "train c.toml --seed 18446744073709551616",
                                  "train c.toml --steps 0",
                                  "train c.toml --steps 1e3",
                                  "train c.toml --threads 0x2",
                                  "launch -n 0 c.toml",
                                  "launch -n two c.toml",
                                  "profile c.toml -o p --seed -2",
                                  "schedule zb-v --ranks 4 --microbatches nan",
                                  "schedule v-half --ranks 4 --microbatches 8 --memory-limit nan",
                                  "check m s --batch -8",
                                  "compile m s --device -1",
                                  "trace flight f -n -3",
                                  "train c.toml --checkpoints run --shard-size 5m",
                                  "train c.toml --checkpoints run --shard-size 0"}) {
    const ProgramResult result = run_piper(wrong, folder);
    EXPECT_EQ(result.exit_code, 2) << wrong << result.errors;
    EXPECT_THAT(result.errors, HasSubstr(" is no ")) << wrong;
  }
}

TEST(Options, NothingIsWrittenOverAnInput) {
  const std::string folder = temporary_folder();
  ASSERT_EQ(run_piper("simulate " + full_inputs + " --cluster h100 --trace t.svg", folder).exit_code, 0);
  const std::string trace = read_text(folder + "/t.svg");
  ASSERT_EQ(std::system(("ln " + folder + "/t.svg " + folder + "/same.svg").c_str()), 0);
  for (const std::string output : {"t.svg", "./t.svg", "same.svg"}) {
    const ProgramResult result = run_piper("view t.svg -o " + output, folder);
    EXPECT_EQ(result.exit_code, 3) << output;
    EXPECT_THAT(result.errors, HasSubstr("error[E108]: cannot write " + output + ": it is in use as trace")) << output;
    EXPECT_EQ(read_text(folder + "/t.svg"), trace) << output;
  }
  EXPECT_EQ(run_piper("view t.svg -o page.html", folder).exit_code, 0);
  EXPECT_EQ(run_piper("view t.svg -o page.html", folder).exit_code, 0) << "what was written may be written again";

  for (const std::string schedule : {"s.piper", "m.toml"})
    write_file(folder + "/" + schedule,
               read_text(root + (schedule[0] == 's' ? "/examples/dualpipe.piper" : "/examples/moe.toml")));
  for (const std::string output : {"s.piper", "m.toml"}) {
    const std::string before = read_text(folder + "/" + output);
    const ProgramResult result = run_piper("simulate m.toml s.piper --cluster h100 --trace " + output, folder);
    EXPECT_EQ(result.exit_code, 3) << output;
    EXPECT_THAT(result.errors, HasSubstr("it is in use as")) << output;
    EXPECT_EQ(read_text(folder + "/" + output), before);
  }
}

TEST(Options, AComparisonNeedsAllItsFiles) {
  const std::string folder = temporary_folder();
  write_file(folder + "/one.piper", "devices(1)\nplace({}, devices=[0])\n");
  const ProgramResult result = run_piper("compare " + root + "/examples/moe.toml one.piper none.piper", folder);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("error[E108]: cannot read schedule \"none.piper\""));
}

TEST(Options, ALauncherIsOneOfMpi) {
  const std::string folder = temporary_folder();
  write_file(folder + "/c.toml", "");
  const ProgramResult result = run_piper("launch --launcher /bin/true -n 2 c.toml", folder);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("error[E805]: \"/bin/true\" is no launcher of Open MPI or MPICH"));
}

/// Success is what the job says, not what its launcher returns.
TEST(Options, ALauncherThatStartsNothingIsNoSuccess) {
  const std::string folder = temporary_folder();
  write_file(folder + "/c.toml", "");
  write_file(folder + "/lazy", "#!/bin/sh\n[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.4'\nexit 0\n");
  ASSERT_EQ(std::system(("chmod +x " + folder + "/lazy").c_str()), 0);
  const ProgramResult result = run_piper("launch --launcher ./lazy -n 2 c.toml", folder);
  EXPECT_EQ(result.exit_code, 3) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("error[E805]: the processes of the job have not begun"));

  write_file(
      folder + "/killed",
      "#!/bin/sh\n[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && exit 0\necho piper-job-begins >&2\n"
      "kill -9 $$\n");
  ASSERT_EQ(std::system(("chmod +x " + folder + "/killed").c_str()), 0);
  const ProgramResult killed = run_piper("launch --launcher ./killed -n 2 c.toml", folder);
  EXPECT_EQ(killed.exit_code, 3);
  EXPECT_THAT(killed.errors,
              HasSubstr("error[E805]: the launcher was ended by signal 9 (Killed) before the job has ended"));
}

/// A launcher that waits for a host, or for a file system, says nothing itself.
TEST(Options, ALauncherThatHangsIsEnded) {
  const std::string folder = temporary_folder();
  write_file(folder + "/c.toml", "");
  write_file(folder + "/hangs",
             "#!/bin/sh\n[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && exit 0\nsleep 1000000\n");
  write_file(folder + "/mute", "#!/bin/sh\nsleep 1000000\n");
  ASSERT_EQ(std::system(("chmod +x " + folder + "/hangs " + folder + "/mute").c_str()), 0);
  // a limit in which `--version` ends, on a machine of any speed
  ProgramResult hangs;
  std::string limit;
  for (const auto& [timeout, named] : {std::pair{"0.1", "3 s"}, {"0.5", "15 s"}, {"5", "150 s"}}) {
    hangs = run_piper(std::string("launch --launcher ./hangs -n 3 c.toml --timeout ") + timeout, folder);
    limit = named;
    if (hangs.errors.find("`--version` does not end") == std::string::npos) break;
  }
  EXPECT_EQ(hangs.exit_code, 3) << hangs.errors;
  EXPECT_THAT(hangs.errors,
              HasSubstr("error[E805]: the launcher has started nothing: none of ranks 0 to 2 began within "
                        "30 x timeout (" +
                        limit + ")"));
  const ProgramResult mute = run_piper("launch --launcher ./mute -n 3 c.toml --timeout=0.1", folder);
  EXPECT_EQ(mute.exit_code, 1) << mute.errors;
  EXPECT_THAT(mute.errors, HasSubstr("error[E805]: the launcher \"./mute\" cannot be started: `--version` does not end "
                                     "within 3 s"));
}

TEST(Options, AnInterfaceIsForSeveralHosts) {
  const ProgramResult result = run_piper("launch -n 2 --interface eth0 c.toml", temporary_folder());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors, HasSubstr("--hosts"));
}

}  // namespace
}  // namespace piper::testing
