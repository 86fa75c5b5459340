// What is special about processes: who has which devices, talk outside of steps, equality with one process.
#include "comm/processes/process_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "comm/devices.h"
#include "comm/local/local_world.h"
#include "comm_mpi/process_devices.h"

namespace piper {
namespace {

using namespace std::chrono_literals;

TEST(ProcessWorld, DevicesAreSharedOutEvenly) {
  for (int ranks = 1; ranks < 9; ++ranks)
    for (int devices = 0; devices < 40; ++devices) {
      int next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const DeviceBlock block = devices_of(rank, ranks, devices);
        ASSERT_EQ(block.first, next);
        ASSERT_LE(std::abs(block.count * ranks - devices), ranks);
        for (int d = block.first; d < block.first + block.count; ++d) ASSERT_EQ(rank_of(d, ranks, devices), rank);
        next += block.count;
      }
      ASSERT_EQ(next, devices);
    }
}

TEST(ProcessWorld, BroadcastReachesEverybody) {
  for (const size_t size : {0, 5, 70'000, 3'000'000}) {
    std::string bytes(size, 'x');
    if (size > 0) bytes.back() = 'y';
    EXPECT_EQ(processes().broadcast(processes().rank() == 0 ? bytes : "other", 1min), bytes);
  }
}

TEST(ProcessWorld, GatherCollectsAtRankZero) {
  const auto text = [](int rank) {
    return std::string(static_cast<size_t>(rank) * 50'000, 'a') + std::to_string(rank);
  };
  const auto all = processes().gather(text(processes().rank()), 1min);
  ASSERT_EQ(all.size(), static_cast<size_t>(processes().rank() == 0 ? processes().ranks() : 0));
  for (size_t rank = 0; rank < all.size(); ++rank) EXPECT_EQ(all[rank], text(static_cast<int>(rank)));
}

TEST(ProcessWorld, GatherGoesOnWithoutThoseThatDoNotCome) {
  const bool silent = processes().rank() == processes().ranks() - 1;
  std::vector<bool> came;
  const std::vector<bool> expected = [] {
    std::vector<bool> out(static_cast<size_t>(processes().ranks()), true);
    out.back() = false;
    return out;
  }();
  // until the others come in time, on a machine of any speed
  for (auto limit = 300ms; limit < 5min; limit *= 4) {
    came.clear();
    if (!silent)
      for (const auto& one : processes().gather("here", processes().rank() == 0 ? limit : 5min))
        came.push_back(one.has_value());
    const std::string verdict = processes().broadcast(silent || came == expected ? "enough" : "again", 10min);
    if (silent) processes().gather("late", 5min);  // nobody takes it, but it counts
    if (verdict == "enough") break;
  }
  if (!silent && processes().rank() == 0) {
    EXPECT_EQ(came, expected);
  }
}

TEST(ProcessWorld, TheNewestNewsStays) {
  const int last = 2000;
  for (int i = 0; i <= last; ++i)
    processes().post(std::to_string(processes().rank()) + " " + std::to_string(i), ProcessWorld::To::Everybody);
  const auto deadline = std::chrono::steady_clock::now() + 2min;
  for (int rank = 0; rank < processes().ranks(); ++rank) {
    const std::string expected = std::to_string(rank) + " " + std::to_string(last);
    PeerHeartbeat heard;
    do {
      heard = processes().heartbeats()[static_cast<size_t>(rank)];
      std::this_thread::sleep_for(1ms);
    } while (heard.block != expected && std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(heard.block, expected);
    EXPECT_LT(std::chrono::steady_clock::now() - heard.when, 2min);
  }
}

/// One exchange of a random program; equal on all devices but for the data.
struct Step {
  int kind, group;
  DataType dtype;
  size_t count;  // elements per member
  unsigned seed;
};

std::vector<Step> random_steps(unsigned seed, size_t groups) {
  std::mt19937 random(seed);
  std::vector<Step> steps(20);
  for (Step& step : steps) {
    const size_t most = std::vector<size_t>{10, 1000, 10'000, 60'000}[random() % 4];
    step = {static_cast<int>(random() % 6), static_cast<int>(random() % groups), static_cast<DataType>(random() % 3),
            1 + random() % most, static_cast<unsigned>(random())};
  }
  return steps;
}

std::vector<std::byte> random_elements(DataType dtype, size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1000, 1000);
  std::vector<std::byte> result(count * static_cast<size_t>(bytes_of(dtype)));
  for (size_t i = 0; i < count; ++i) {
    const double wide = uniform(random);
    const float narrow = static_cast<float>(wide);
    if (dtype == DataType::Float64) reinterpret_cast<double*>(result.data())[i] = wide;
    if (dtype == DataType::Float32) reinterpret_cast<float*>(result.data())[i] = narrow;
    if (dtype == DataType::BFloat16)
      reinterpret_cast<uint16_t*>(result.data())[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(narrow) >> 16);
  }
  return result;
}

/// What a device has at the end of a step, whatever it is.
std::vector<std::byte> run_step(Communicator& device, const Step& step, const std::vector<int>& members,
                                int64_t sequence) {
  const size_t n = members.size();
  const auto d = static_cast<unsigned>(device.device());
  std::vector<std::byte> data = random_elements(step.dtype, step.count * n, step.seed + d);
  std::vector<std::byte> part = random_elements(step.dtype, step.count, step.seed + 100 + d), whole(data.size());
  const auto run = static_cast<int64_t>(part.size());
  const int64_t short_run = step.seed % 2 == 0 ? run : bytes_of(step.dtype);  // parts one after another, or interleaved
  switch (step.kind) {
    case 0:
      device.all_reduce(step.group, sequence, data, step.dtype, step.seed % 3 == 0 ? Combine::Max : Combine::Sum);
      return data;
    case 1:
    case 2:
      device.reduce_scatter(step.group, sequence, data, short_run, part, step.dtype,
                            step.kind == 1 ? Communicator::Into::Replace : Communicator::Into::Add);
      return part;
    case 3:
      device.all_gather(step.group, sequence, part, whole, short_run);
      return whole;
    case 4:
      device.all_to_all(step.group, sequence, data, bytes_of(step.dtype), whole, run);
      return whole;
    default:
      device.shift(step.group, sequence, static_cast<int>(1 + step.seed % (n - 1)), data, whole);
      return whole;
  }
}

/// Random exchanges from several threads per device, in process groups of several sizes: bit for bit what `local`
/// gives.
TEST(ProcessWorld, EqualToLocal) {
  const std::vector<std::vector<int>> groups = {{0, 1, 2, 3, 4}, {4, 2, 0}, {3, 1}, {0, 1, 2, 3, 4}};
  constexpr int devices = 5, threads = 3;
  using Results = std::map<std::pair<size_t, size_t>, std::vector<std::vector<std::byte>>>;
  for (const unsigned seed : {1u, 2u}) {
    std::vector<std::vector<Step>> steps;
    for (unsigned thread = 0; thread < threads; ++thread)
      steps.push_back(random_steps(10 * seed + thread, groups.size()));
    const auto run = [&](const Communicators& world) {
      Results results;
      for (const auto& device : world)
        for (size_t t = 0; t < threads; ++t) results[{static_cast<size_t>(device->device()), t}] = {};
      make_process_groups(world, groups);
      EXPECT_THAT(on_all(
                      world,
                      [&](Communicator& device, size_t d, size_t t) {
                        std::mt19937 delays(static_cast<unsigned>(d * 10 + t));
                        for (size_t k = 0; k < steps[t].size(); ++k) {
                          const std::vector<int>& members = groups[static_cast<size_t>(steps[t][k].group)];
                          if (!std::count(members.begin(), members.end(), static_cast<int>(d))) continue;
                          wait_a_little(delays);
                          results.at({d, t}).push_back(
                              run_step(device, steps[t][k], members, static_cast<int64_t>(t * 1000 + k)));
                        }
                      },
                      threads),
                  none_failed);
      return results;
    };
    const Results expected = run(make_local_world(devices)), measured = run(make_world(devices));
    for (const auto& [where, results] : measured)
      EXPECT_TRUE(results == expected.at(where)) << "device " << where.first << " thread " << where.second;
  }
}

/// Sizes over 2^31 bytes. Needs 2.2 GB for each of two devices.
TEST(ProcessWorld, MoreThanTwoGigabytes) {
  if (!std::getenv("PIPER_LONG")) GTEST_SKIP() << "only with PIPER_LONG=1 in the environment";
  constexpr size_t count = (size_t{1} << 29) + 1000;
  const Communicators world = make_world(2);
  make_process_groups(world, {{0, 1}});
  const auto value = [](size_t i) { return static_cast<uint32_t>(i * 2654435761u); };
  EXPECT_THAT(on_all(world,
                     [&](Communicator& device, size_t d, size_t) {
                       std::vector<uint32_t> x(count);
                       if (d == 0) {
                         for (size_t i = 0; i < count; ++i) x[i] = value(i);
                         device.send(1, 0, bytes(std::as_const(x)));
                       } else {
                         device.receive(0, 0, bytes(x));
                         for (size_t i = 0; i < count; ++i) ASSERT_EQ(x[i], value(i));
                       }
                       std::fill(x.begin(), x.end(), 0x3F800000);  // 1.0f
                       device.all_reduce(0, 1, bytes(x), DataType::Float32);
                       for (size_t i = 0; i < count; ++i) ASSERT_EQ(x[i], 0x40000000u);
                     }),
              none_failed);
}

}  // namespace
}  // namespace piper
