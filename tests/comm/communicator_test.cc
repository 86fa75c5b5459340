// What every world promises: what arrives, in which order it is added up, and how waits end.
#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "devices.h"

namespace piper {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// Sizes that travel in different ways: at once, in one piece, in many.
const std::vector<size_t> sizes = {0, 1, 3, 5000, 100'000, 1'000'003};

TEST(Communicator, TransfersMeet) {
  const Communicators world = make_world(2);
  for (const size_t size : sizes) {
    std::vector<int> sent(size), received(size);
    std::iota(sent.begin(), sent.end(), 1);
    EXPECT_THAT(on_all(world,
                       [&](Communicator& device, size_t d, size_t) {
                         if (d == 0) return device.send(1, 7, bytes(std::as_const(sent)));
                         device.receive(0, 7, bytes(received));
                         ASSERT_EQ(received, sent);
                       }),
                none_failed);
  }
}

TEST(Communicator, EveryCollective) {
  constexpr size_t n = 4;
  const std::vector<int> order = {2, 0, 3, 1};  // positions differ from device numbers
  const Communicators world = make_world(n);
  make_process_groups(world, {order});
  std::vector<size_t> position(n);
  for (size_t i = 0; i < n; ++i) position[static_cast<size_t>(order[i])] = i;
  const auto value = [&](size_t device, size_t i) { return static_cast<double>(device * 100 + i); };
  int64_t sequence = 0;
  for (const size_t part : sizes) {
    const auto all_devices = [&](Communicator& device, size_t d, size_t) {
      std::vector<double> all(n * part), whole(n * part), mine(part, 1), in(n * part);
      for (size_t i = 0; i < all.size(); ++i) all[i] = value(d, i);
      const std::vector<double> out = all;
      device.all_reduce(0, sequence + 1, bytes(all), DataType::Float64);
      for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], 600 + 4 * static_cast<double>(i));
      for (size_t i = 0; i < all.size(); ++i) all[i] = i % n == d ? value(d, i) : -value(d, i);
      if (d == 2 && !all.empty()) all[0] = std::numeric_limits<double>::quiet_NaN();
      device.all_reduce(0, sequence + 7, bytes(all), DataType::Float64, Combine::Max);
      for (size_t i = 1; i < all.size(); ++i) ASSERT_EQ(all[i], value(i % n, i));
      ASSERT_TRUE(all.empty() || std::isnan(all[0]));
      const auto run = static_cast<int64_t>(part * sizeof(double));
      device.reduce_scatter(0, sequence + 2, bytes(out), run, bytes(mine), DataType::Float64, Communicator::Into::Add);
      for (size_t i = 0; i < part; ++i) ASSERT_EQ(mine[i], 601 + 4 * static_cast<double>(position[d] * part + i));
      for (size_t i = 0; i < part; ++i) mine[i] = value(d, i);
      device.all_gather(0, sequence + 3, bytes(std::as_const(mine)), bytes(whole), run);
      for (size_t m = 0; m < n; ++m)
        for (size_t i = 0; i < part; ++i) ASSERT_EQ(whole[m * part + i], value(static_cast<size_t>(order[m]), i));
      std::vector<double> woven(n * part), sums(part);  // the same where every element is a run
      device.all_gather(0, sequence + 5, bytes(std::as_const(mine)), bytes(woven), sizeof(double));
      for (size_t m = 0; m < n; ++m)
        for (size_t i = 0; i < part; ++i) ASSERT_EQ(woven[i * n + m], value(static_cast<size_t>(order[m]), i));
      device.reduce_scatter(0, sequence + 6, bytes(out), sizeof(double), bytes(sums), DataType::Float64,
                            Communicator::Into::Replace);
      for (size_t i = 0; i < part; ++i) ASSERT_EQ(sums[i], 600 + 4 * static_cast<double>(i * n + position[d]));
      device.all_to_all(0, sequence + 4, bytes(out), run, bytes(in), run);
      for (size_t m = 0; m < n; ++m)
        for (size_t i = 0; i < part; ++i)
          ASSERT_EQ(in[m * part + i], value(static_cast<size_t>(order[m]), position[d] * part + i));
      for (const int by : {1, 3}) {
        device.shift(0, sequence + 7 + by, by, bytes(out), bytes(in));
        const auto from = static_cast<size_t>(order[(position[d] + n - static_cast<size_t>(by)) % n]);
        for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(in[i], value(from, i)) << by;
      }
    };
    EXPECT_THAT(on_all(world, all_devices), none_failed) << part;
    sequence += 11;
  }
}

TEST(Communicator, PartsMayLieInterleaved) {
  constexpr size_t n = 3, run = 2, runs = 5;
  const Communicators world = make_world(n);
  make_process_groups(world, {{0, 1, 2}});
  const auto value = [](size_t from, size_t to, size_t i) { return static_cast<int>(from * 100 + to * 20 + i); };
  EXPECT_THAT(on_all(world,
                     [&](Communicator& device, size_t d, size_t) {
                       std::vector<int> out(n * run * runs), in(out.size());
                       for (size_t to = 0; to < n; ++to)
                         for (size_t i = 0; i < run * runs; ++i)
                           out[(i / run * n + to) * run + i % run] = value(d, to, i);
                       constexpr int64_t size = sizeof(int);
                       device.all_to_all(0, 1, bytes(std::as_const(out)), run * size, bytes(in), run * runs * size);
                       for (size_t from = 0; from < n; ++from)
                         for (size_t i = 0; i < run * runs; ++i)
                           ASSERT_EQ(in[from * run * runs + i], value(from, d, i));
                       const std::vector<int> back = in;
                       std::vector<int> again(out.size());
                       device.all_to_all(0, 2, bytes(back), run * runs * size, bytes(again), run * size);
                       ASSERT_EQ(again, out);
                     }),
              none_failed);
}

/// Pieces of all sizes, several calls with one sequence number; some pairs have nothing for each other.
TEST(Communicator, ExchangesPieces) {
  constexpr size_t n = 3;
  const Communicators world = make_world(n);
  make_process_groups(world, {{2, 0, 1}});
  const std::vector<size_t> place = {1, 2, 0};  // in the group, by device
  const auto size = [](size_t from, size_t to, int turn) {
    return sizes[(from * 2 + to + static_cast<size_t>(turn)) % 5];
  };
  const auto value = [](size_t from, size_t to, size_t i) { return static_cast<char>(from * 31 + to * 7 + i); };
  EXPECT_THAT(on_all(world,
                     [&](Communicator& device, size_t d, size_t) {
                       const size_t me = place[d];
                       for (int turn = 0; turn < 4; ++turn) {
                         std::vector<std::vector<char>> out(n), in(n);
                         std::vector<std::span<const std::byte>> outwards;
                         std::vector<std::span<std::byte>> inwards;
                         for (size_t m = 0; m < n; ++m) {
                           out[m].resize(size(me, m, turn));
                           for (size_t i = 0; i < out[m].size(); ++i) out[m][i] = value(me, m, i);
                           in[m].resize(size(m, me, turn));
                           outwards.push_back(bytes(std::as_const(out[m])));
                           inwards.push_back(bytes(in[m]));
                         }
                         device.exchange(0, 5, turn, outwards, inwards);
                         for (size_t m = 0; m < n; ++m)
                           for (size_t i = 0; i < in[m].size(); ++i) ASSERT_EQ(in[m][i], value(m, me, i)) << m;
                       }
                     }),
              none_failed);
}

/// Sums of floats depend on their order; here it is always the process group's, whoever comes first.
TEST(Communicator, SumsAreReproducible) {
  constexpr size_t n = 3;
  const Communicators world = make_world(n);
  make_process_groups(world, {{0, 1, 2}});
  int run = 0;
  for (const size_t size : {1000, 300'000}) {
    std::vector<std::vector<float>> given(n, std::vector<float>(size));
    std::mt19937 random(1);
    for (auto& values : given)
      for (float& v : values) v = static_cast<float>(random()) * (random() % 2 ? 1e-3f : -1e3f);
    std::vector<float> expected(size);
    for (size_t i = 0; i < size; ++i) expected[i] = (given[0][i] + given[1][i]) + given[2][i];
    for (const int end = run + (size == 1000 ? 50 : 5); run < end; ++run)
      EXPECT_THAT(on_all(world,
                         [&](Communicator& device, size_t d, size_t) {
                           std::mt19937 delays(static_cast<unsigned>(run * 10) + static_cast<unsigned>(d));
                           wait_a_little(delays);
                           std::vector<float> values = given[d];
                           device.all_reduce(0, run, bytes(values), DataType::Float32);
                           ASSERT_EQ(std::memcmp(values.data(), expected.data(), size * sizeof(float)), 0);
                         }),
                  none_failed);
  }
}

TEST(Communicator, SeveralExchangesAtOnce) {
  const Communicators world = make_world(4);
  make_process_groups(world, {{0, 1, 2, 3}, {0, 1}, {2, 3}});
  const auto two_streams = [&](Communicator& device, size_t d, size_t stream) {
    const int group = stream == 0 ? 0 : d < 2 ? 1 : 2;
    std::mt19937 delays(static_cast<unsigned>(2 * d + stream));
    for (int64_t k = 0; k < 100; ++k) {
      wait_a_little(delays);
      std::vector<double> x(k % 20 == 0 ? 30'000 : 3, static_cast<double>(d));
      device.all_reduce(group, static_cast<int64_t>(stream) * 1000 + k, bytes(x), DataType::Float64);
      ASSERT_EQ(x.front(), stream == 0 ? 6 : d < 2 ? 1 : 5);
      ASSERT_EQ(x.back(), x.front());
    }
  };
  EXPECT_THAT(on_all(world, two_streams, 2), none_failed);
}

TEST(Communicator, WaitsEndAtTheDeadline) {
  const Communicators world = make_world(2, milliseconds(50));
  for (const size_t size : {1, 1'000'000}) {
    std::vector<int> x(size);
    for (const auto& [device, problem] : on_all(world, [&](Communicator&device, size_t d, size_t) {
           if (d == 0) device.receive(1, static_cast<int64_t>(size), bytes(x));
         }))
      EXPECT_THAT(problem, HasSubstr(device == 0 ? "did not come in time" : ""));
  }
}

TEST(Communicator, AbortEndsAllWaits) {
  const Communicators world = make_world(3);
  make_process_groups(world, {{0, 1, 2}});
  const auto problems = on_all(world, [&](Communicator& device, size_t d, size_t) {
    if (d == 2) {
      std::this_thread::sleep_for(milliseconds(10));
      device.abort("device 2: out of memory");
      return;
    }
    std::vector<double> x(1);
    device.all_reduce(0, 0, bytes(x), DataType::Float64);
  });
  for (const auto& [device, problem] : problems) EXPECT_EQ(problem, device == 2 ? "" : "device 2: out of memory");
}

/// What is on its way when a job is stopped touches no memory afterwards, and the next world works.
TEST(Communicator, AbortInTheMiddleOfLargeTransfers) {
  for (int time = 0; time < 5; ++time) {
    const Communicators world = make_world(3, std::chrono::minutes(5));
    const auto problems = on_all(
        world,
        [&](Communicator& device, size_t d, size_t thread) {
          std::vector<int> x(d == 2 ? 0 : 2'000'000);
          if (d == 2) {
            std::this_thread::sleep_for(milliseconds(time));
            return device.abort("enough");
          }
          for (int64_t k = 0; k < 10'000; ++k)
            if ((d + thread) % 2 == 0)
              device.send(1 - static_cast<int>(d), static_cast<int64_t>(d) * 10'000 + k, bytes(std::as_const(x)));
            else
              device.receive(1 - static_cast<int>(d), (1 - static_cast<int64_t>(d)) * 10'000 + k, bytes(x));
        },
        2);
    for (const auto& [device, problem] : problems) EXPECT_EQ(problem, device == 2 ? "" : "enoughenough");
  }
  const Communicators world = make_world(3);
  make_process_groups(world, {{0, 1, 2}});
  EXPECT_THAT(on_all(world,
                     [&](Communicator& device, size_t, size_t) {
                       std::vector<double> x(200'000, 1);
                       device.all_reduce(0, 0, bytes(x), DataType::Float64);
                       ASSERT_EQ(x.back(), 3);
                     }),
              none_failed);
}

TEST(Communicator, DifferentSizesAreRefused) {
  for (const size_t size : {1, 10'000, 1'000'000}) {
    const Communicators world = make_world(2);
    make_process_groups(world, {{0, 1}});
    const auto problems = on_all(world, [&](Communicator& device, size_t d, size_t) {
      std::vector<double> x(size + d);
      try {
        device.all_reduce(0, 0, bytes(x), DataType::Float64);
      } catch (const CommunicationError& problem) {
        device.abort(problem.what());
        throw;
      }
    });
    for (const auto& [device, problem] : problems) EXPECT_THAT(problem, HasSubstr("different sizes"));
  }
}

}  // namespace
}  // namespace piper
