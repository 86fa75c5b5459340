// Runs the tests in every process that MPI has started; only rank 0 tells what went well.
#include <gtest/gtest.h>

#include <iostream>

#include "comm/devices.h"
#include "comm/mpi/mpi_world.h"
#include "comm_mpi/process_devices.h"

namespace piper {
namespace {

MpiWorld* joined = nullptr;

}  // namespace

ProcessWorld& processes() {
  return *joined;
}

Communicators make_world(int devices, std::chrono::milliseconds timeout) {
  return processes().make(devices, timeout);
}

TEST(MpiWorld, TheLauncherSaysHowMany) {
  EXPECT_EQ(launched_ranks(), processes().ranks());
}

}  // namespace piper

int main(int argc, char** argv) {
  piper::MpiWorld world;
  piper::joined = &world;
  if (world.rank() == 0)
    std::cout << world.ranks() << " processes, " << world.library() << std::endl;
  else
    testing::GTEST_FLAG(brief) = true;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
