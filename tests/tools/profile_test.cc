// What a run on this machine, in threads of one process, says about itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "base/machine.h"
#include "run_piper.h"

namespace piper::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// While it lives, this process and those that it starts have one core.
class OneCore {
 public:
  OneCore() {
    CPU_ZERO(&before_);
    sched_getaffinity(0, sizeof before_, &before_);
    int first = 0;
    while (!CPU_ISSET(first, &before_)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

class Profile : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(
        folder_ + "/small.toml",
        "[model]\nname = \"small\"\narch = \"reference\"\nlayers = 2\nhidden = 16\nheads = 2\nvocab = 32\nseq = 8\n"
        "[step]\nbatch = 4\n");
    write_file(folder_ + "/two.piper",
               "mesh(pp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, along=pp, stages=2)\nuse 1f1b()\n");
    write_file(folder_ + "/one.piper", "devices(1)\nplace({}, devices=[0])\n");
  }
  ProgramResult run(const std::string& command) { return run_piper(command, folder_); }
  static bool without_libtorch(const ProgramResult& result) {
    return result.errors.find("error[E804]") != std::string::npos;
  }

  const std::string folder_ = temporary_folder();
};

TEST_F(Profile, SaysThatDevicesShareCores) {
  const OneCore here;
  const ProgramResult shared = run("profile small.toml --schedule two.piper -o shared --steps 1");
  if (without_libtorch(shared)) GTEST_SKIP() << "built without libtorch";
  ASSERT_EQ(shared.exit_code, 0) << shared.errors;
  EXPECT_THAT(shared.output,
              ::testing::ContainsRegex("^2 devices of 1 thread share [0-9.]+ cores?; shared/cluster.toml "
                                       "records this, and predictions account for it\n"));
  EXPECT_THAT(read_text(folder_ + "/shared/cluster.toml"), HasSubstr("devices = 2\nprocessors = 1\ntogether = 1\n"));
  if (usable_cores() < 1) return;  // then one device lacks a part of a core, too
  const ProgramResult alone = run("profile small.toml --schedule one.piper -o alone --steps 1");
  ASSERT_EQ(alone.exit_code, 0) << alone.errors;
  EXPECT_THAT(alone.output, Not(HasSubstr("share")));
  EXPECT_THAT(read_text(folder_ + "/alone/cluster.toml"), Not(HasSubstr("together")));
}

TEST_F(Profile, NetworksAreEmulatedBetweenThreadsOnly) {
  const ProgramResult result = run("train small.toml --schedule two.piper --steps 1 --backend mpi --emulate h100");
  if (without_libtorch(result)) GTEST_SKIP() << "built without libtorch";
  if (result.errors.find("error[E806]") != std::string::npos) GTEST_SKIP() << "built without MPI";
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("error[E805]: a network is emulated between threads of one process only\n"
                                       "help: leave --emulate out, or --backend mpi"));
}

}  // namespace
}  // namespace piper::testing
