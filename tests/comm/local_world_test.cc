// What only devices in one process can do.
#include "comm/local/local_world.h"

#include <gtest/gtest.h>

#include "devices.h"

namespace piper {
namespace {

TEST(LocalWorld, AnEmulatedNetworkTakesItsTime) {
  const Communicators world =
      make_local_world(2, {.timeout = std::chrono::minutes(1), .seconds = [](int64_t) { return 0.02; }});
  std::vector<int> x(1);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(on_all(world,
                     [&](Communicator& device, size_t d, size_t) {
                       if (d == 0)
                         device.send(1, 0, bytes(std::as_const(x)));
                       else
                         device.receive(0, 0, bytes(x));
                     }),
              none_failed);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace piper
