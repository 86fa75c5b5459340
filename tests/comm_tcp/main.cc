// Runs the tests in N processes that are joined by TCP: tcp_tests N [options of googletest]; only rank 0 tells what
// went well.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>

#include "comm/devices.h"
#include "comm/tcp/tcp_transport.h"
#include "comm_mpi/process_devices.h"

namespace piper {
namespace {

ProcessWorld* joined = nullptr;

}  // namespace

ProcessWorld& processes() {
  return *joined;
}

Communicators make_world(int devices, std::chrono::milliseconds timeout) {
  return processes().make(devices, timeout);
}

}  // namespace piper

int main(int argc, char** argv) {
  using namespace piper;
  const size_t ranks = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 0;
  if (ranks < 1) return 2;
  std::vector<TcpDoor> doors;  // of all, before they part
  std::vector<std::string> addresses;
  for (size_t rank = 0; rank < ranks; ++rank) addresses.push_back(doors.emplace_back("127.0.0.1").address());
  size_t rank = 0;
  std::vector<pid_t> others;
  for (size_t i = 1; i < ranks && rank == 0; ++i) {
    const pid_t made = fork();
    if (made == 0) rank = i;
    others.push_back(made);
  }
  if (rank != 0) others.clear();
  int code = 0;
  {
    ProcessWorld world(
        [&] { return make_tcp_transport(static_cast<int>(rank), doors[rank], addresses, std::chrono::minutes(1)); });
    joined = &world;
    if (rank == 0)
      std::cout << world.ranks() << " processes, " << world.library() << std::endl;
    else
      testing::GTEST_FLAG(brief) = true;
    testing::InitGoogleTest(&argc, argv);
    code = RUN_ALL_TESTS();
  }
  for (const pid_t other : others) {
    int status = 0;
    waitpid(other, &status, 0);
    code |= status != 0 ? 1 : 0;
  }
  return code;
}
