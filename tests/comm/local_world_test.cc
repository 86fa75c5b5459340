// Devices as threads: what arrives, in which order it is added up, and how waits end.
#include "comm/local/local_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "comm/numbers.h"

namespace piper {
namespace {

using World = std::vector<std::unique_ptr<Communicator>>;

std::span<std::byte> bytes(auto& values) {
  return std::as_writable_bytes(std::span(values));
}
std::span<const std::byte> bytes(const auto& values) {
  return std::as_bytes(std::span(values));
}

/// Runs `work(device)` on a thread per device; what was thrown, by device.
template <class Work>
std::vector<std::string> on_all(size_t devices, Work work) {
  std::vector<std::string> errors(devices);
  std::vector<std::thread> threads;
  for (size_t d = 0; d < devices; ++d)
    threads.emplace_back([&, d] {
      try {
        work(d);
      } catch (const std::exception& problem) {
        errors[d] = problem.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void make_circles(World& world, const std::vector<std::vector<int>>& circles) {
  for (const auto& communicator : world)
    for (const auto& circle : circles) communicator->make_circle(circle);
}

void nap(std::mt19937& random) {
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
}

const auto none_failed = testing::Each(testing::IsEmpty());

TEST(LocalWorld, TransfersMeet) {
  World world = make_local_world(2);
  std::vector<int> sent = {1, 2, 3}, received(3);
  EXPECT_THAT(on_all(2,
                     [&](size_t d) {
                       if (d == 0)
                         world[0]->send(1, 7, bytes(std::as_const(sent)));
                       else
                         world[1]->receive(0, 7, bytes(received));
                     }),
              none_failed);
  EXPECT_EQ(received, sent);
}

TEST(LocalWorld, EveryCollective) {
  constexpr size_t n = 4, part = 5;
  World world = make_local_world(n);
  make_circles(world, {{2, 0, 3, 1}});  // positions differ from device numbers
  const std::vector<int> order = {2, 0, 3, 1};
  std::vector<size_t> position(n);
  for (size_t i = 0; i < n; ++i) position[static_cast<size_t>(order[i])] = i;
  const auto value = [&](size_t device, size_t i) { return static_cast<double>(device * 100 + i); };
  EXPECT_THAT(on_all(n,
                     [&](size_t d) {
                       std::vector<double> all(n * part), whole(n * part), mine(part, 1), in(n * part);
                       for (size_t i = 0; i < all.size(); ++i) all[i] = value(d, i);
                       const std::vector<double> out = all;
                       world[d]->all_reduce(0, 1, bytes(all), Number::Float64);
                       for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], 600 + 4 * static_cast<double>(i));
                       world[d]->reduce_scatter(0, 2, bytes(out), bytes(mine), Number::Float64,
                                                Communicator::Into::Add);
                       for (size_t i = 0; i < part; ++i)
                         ASSERT_EQ(mine[i], 601 + 4 * static_cast<double>(position[d] * part + i));
                       for (size_t i = 0; i < part; ++i) mine[i] = value(d, i);
                       world[d]->all_gather(0, 3, bytes(std::as_const(mine)), bytes(whole));
                       for (size_t m = 0; m < n; ++m)
                         for (size_t i = 0; i < part; ++i)
                           ASSERT_EQ(whole[m * part + i], value(static_cast<size_t>(order[m]), i));
                       const auto run = static_cast<int64_t>(part * sizeof(double));
                       world[d]->all_to_all(0, 4, bytes(out), run, bytes(in), run);
                       for (size_t m = 0; m < n; ++m)
                         for (size_t i = 0; i < part; ++i)
                           ASSERT_EQ(in[m * part + i], value(static_cast<size_t>(order[m]), position[d] * part + i));
                     }),
              none_failed);
}

/// Sums of floats depend on their order; here it is always the circle's, whoever comes first.
TEST(LocalWorld, SumsAreReproducible) {
  constexpr size_t n = 3, size = 1000;
  World world = make_local_world(n);
  make_circles(world, {{0, 1, 2}});
  std::vector<std::vector<float>> given(n, std::vector<float>(size));
  std::mt19937 random(1);
  for (auto& values : given)
    for (float& v : values) v = static_cast<float>(random()) * (random() % 2 ? 1e-3f : -1e3f);
  std::vector<float> expected(size);
  for (size_t i = 0; i < size; ++i) expected[i] = (given[0][i] + given[1][i]) + given[2][i];
  for (int run = 0; run < 50; ++run) {
    EXPECT_THAT(on_all(n,
                       [&](size_t d) {
                         std::mt19937 delays(static_cast<unsigned>(run * 10) + static_cast<unsigned>(d));
                         nap(delays);
                         std::vector<float> values = given[d];
                         world[d]->all_reduce(0, run, bytes(values), Number::Float32);
                         ASSERT_EQ(std::memcmp(values.data(), expected.data(), size * sizeof(float)), 0);
                       }),
                none_failed);
  }
}

TEST(LocalWorld, SeveralExchangesAtOnce) {
  constexpr size_t n = 4;
  World world = make_local_world(n);
  make_circles(world, {{0, 1, 2, 3}, {0, 1}, {2, 3}});
  EXPECT_THAT(on_all(2 * n,
                     [&](size_t thread) {  // two streams per device, each in its own order
                       const size_t d = thread / 2, stream = thread % 2;
                       const int circle = stream == 0 ? 0 : d < 2 ? 1 : 2;
                       std::mt19937 delays(static_cast<unsigned>(thread));
                       for (int64_t k = 0; k < 100; ++k) {
                         nap(delays);
                         std::vector<double> x(3, static_cast<double>(d));
                         world[d]->all_reduce(circle, static_cast<int64_t>(stream) * 1000 + k, bytes(x),
                                              Number::Float64);
                         ASSERT_EQ(x[0], stream == 0 ? 6 : d < 2 ? 1 : 5);
                       }
                     }),
              none_failed);
}

TEST(LocalWorld, BFloat16IsSummedInFloat32) {
  // 256 + 1 + 1: bfloat16 has 8 bits, so 256 + 1 would be 256 again if it were rounded in between
  const uint16_t x256 = 0x4380, one = 0x3F80, x258 = 0x4381;
  const uint16_t a = x256, b = one, c = one;
  uint16_t total = 0;
  const std::byte* from[] = {reinterpret_cast<const std::byte*>(&a), reinterpret_cast<const std::byte*>(&b),
                             reinterpret_cast<const std::byte*>(&c)};
  sum(from, reinterpret_cast<std::byte*>(&total), 2, Number::BFloat16);
  EXPECT_EQ(total, x258);
}

TEST(LocalWorld, WaitsEndAtTheDeadline) {
  World world = make_local_world(2, {.patience = std::chrono::milliseconds(20), .seconds = {}});
  std::vector<int> x(1);
  const auto errors = on_all(1, [&](size_t) { world[0]->receive(1, 0, bytes(x)); });
  EXPECT_THAT(errors[0], testing::HasSubstr("did not come in time"));
}

TEST(LocalWorld, AbortEndsAllWaits) {
  World world = make_local_world(3);
  make_circles(world, {{0, 1, 2}});
  const auto errors = on_all(3, [&](size_t d) {
    if (d == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      world[2]->abort("device 2: out of memory");
      return;
    }
    std::vector<double> x(1);
    world[d]->all_reduce(0, 0, bytes(x), Number::Float64);
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"device 2: out of memory", "device 2: out of memory", ""}));
}

TEST(LocalWorld, DifferentSizesAreRefused) {
  World world = make_local_world(2);
  make_circles(world, {{0, 1}});
  const auto errors = on_all(2, [&](size_t d) {
    std::vector<double> x(d + 1);
    try {
      world[d]->all_reduce(0, 0, bytes(x), Number::Float64);
    } catch (const CommunicationError& problem) {
      world[d]->abort(problem.what());
      throw;
    }
  });
  EXPECT_THAT(errors, testing::Each(testing::HasSubstr("different sizes")));
}

TEST(LocalWorld, AnEmulatedNetworkTakesItsTime) {
  World world = make_local_world(2, {.patience = std::chrono::minutes(1), .seconds = [](int64_t) { return 0.02; }});
  std::vector<int> x(1);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(on_all(2,
                     [&](size_t d) {
                       if (d == 0)
                         world[0]->send(1, 0, bytes(std::as_const(x)));
                       else
                         world[1]->receive(0, 0, bytes(x));
                     }),
              none_failed);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace piper
