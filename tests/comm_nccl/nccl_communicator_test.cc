// Communication over NCCL, with something in its place: what arrives, how waits end, and that mistakes are found.
#include "comm/nccl/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/devices.h"
#include "comm/local/local_world.h"
#include "comm_nccl/stand_in.h"

namespace piper {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Communicators world_over(NcclStandIn& nccl, int devices) {
  LocalOptions options;
  options.timeout = minutes(5);
  Communicators world = make_local_world(devices, options);
  for (auto& communicator : world) communicator = nccl.communicator(std::move(communicator));
  return world;
}

/// All at once: they wait for each other.
void leave(Communicators& world) {
  std::vector<std::thread> leaving;
  for (auto& device : world) leaving.emplace_back([&] { device.reset(); });
  for (std::thread& thread : leaving) thread.join();
}

TEST(NcclCommunicator, CarriesWhatOthersDo) {
  constexpr size_t n = 4, part = 6;
  const std::vector<int> order = {2, 0, 3, 1};
  NcclStandIn nccl(n, minutes(5));
  Communicators world = world_over(nccl, n);
  const Communicators threads = make_local_world(n);
  make_process_groups(threads, {order});
  std::vector<std::vector<double>> seen(n), expected(n);
  const auto run = [&](Communicator& device, size_t d, std::vector<double>& out) {
    const auto keep = [&](const std::vector<double>& values) { out.insert(out.end(), values.begin(), values.end()); };
    std::vector<double> all(n * part), mine(part, 1), in(n * part);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(100 * d + i);
    const std::vector<double> given = all;
    device.all_reduce(0, 1, bytes(all), DataType::Float64);
    keep(all);
    int64_t sequence = 2;
    for (const size_t run : {part, part / 2, part / 3}) {
      const auto run_bytes = static_cast<int64_t>(run * sizeof(double));
      for (const auto into : {Communicator::Into::Replace, Communicator::Into::Add}) {
        device.reduce_scatter(0, sequence++, bytes(given), run_bytes, bytes(mine), DataType::Float64, into);
        keep(mine);
      }
      device.all_gather(0, sequence++, bytes(std::as_const(mine)), bytes(in), run_bytes);
      keep(in);
    }
    for (const size_t run_out : {part, part / 2, part / 3})
      for (const size_t run_in : {part, part / 2, part / 3}) {
        device.all_to_all(0, sequence++, bytes(given), static_cast<int64_t>(run_out * sizeof(double)), bytes(in),
                          static_cast<int64_t>(run_in * sizeof(double)));
        keep(in);
      }
    for (const int by : {1, 3}) {
      device.shift(0, sequence++, by, bytes(given), bytes(in));
      keep(in);
    }
  };
  EXPECT_THAT(on_all(world,
                     [&](Communicator& device, size_t d, size_t) {
                       device.make_group(order);
                       run(device, d, seen[d]);
                     }),
              none_failed);
  EXPECT_THAT(on_all(threads, [&](Communicator& device, size_t d, size_t) { run(device, d, expected[d]); }),
              none_failed);
  EXPECT_EQ(seen, expected);
  EXPECT_THAT(mistakes(nccl.records()), IsEmpty());
  leave(world);
  EXPECT_EQ(nccl.destroyed(), 4);
  EXPECT_EQ(nccl.aborted(), 0);
}

/// Both directions at once, and to itself: each has a communicator of its own.
TEST(NcclCommunicator, Transfers) {
  NcclStandIn nccl(2, minutes(5));
  Communicators world = world_over(nccl, 2);
  EXPECT_THAT(on_all(world,
                     [&](Communicator& device, size_t d, size_t) {
                       const auto other = 1 - static_cast<int>(d);
                       for (const auto& [from, to] : {std::pair{0, 1}, {1, 0}, {0, 1}, {0, 0}})
                         device.connect(from, to);
                       const std::vector<size_t> mine(1000, d);
                       std::vector<size_t> theirs(1000), again(1000);
                       std::thread sends([&] {
                         device.send(other, 1, bytes(mine));
                         if (d == 0) device.send(0, 2, bytes(mine));
                       });
                       device.receive(other, 1, bytes(theirs));
                       if (d == 0) device.receive(0, 2, bytes(again));
                       sends.join();
                       ASSERT_THAT(theirs, testing::Each(1 - d));
                       ASSERT_THAT(again, testing::Each(0));
                     }),
              none_failed);
  EXPECT_THAT(mistakes(nccl.records()), IsEmpty());
  EXPECT_EQ(nccl.records()[0].size(), 4);  // two communicators, one send, one receive
  leave(world);
}

TEST(NcclCommunicator, MakingOneHasADeadline) {
  NcclStandIn nccl(2, milliseconds(200));
  const Communicators world = world_over(nccl, 2);
  nccl.plant = [](int device, const NcclRecord& call) { return device == 0 || call.kind != NcclRecord::Kind::Init; };
  const auto problems = on_all(world, [&](Communicator& device, size_t, size_t) { device.make_group({0, 1}); });
  EXPECT_EQ(problems.at(0), "cannot make a communicator of NCCL: not all of devices [0, 1] have come in time");
  EXPECT_EQ(problems.at(1), problems.at(0));
}

TEST(NcclCommunicator, WhatFailedIsAbortedAndNeverDestroyed) {
  NcclStandIn nccl(2, minutes(5));
  Communicators world = world_over(nccl, 2);
  const auto problems = on_all(world, [&](Communicator& device, size_t d, size_t) {
    device.make_group({0, 1});
    std::vector<float> x(d + 1);
    device.all_reduce(0, 1, bytes(x), DataType::Float32);
  });
  EXPECT_THAT(problems.at(0), HasSubstr("cannot add up among devices [0, 1]"));
  EXPECT_THAT(mistakes(nccl.records()),
              ElementsAre("call 0: device 0 makes all_reduce of 1 on communicator 0, device 1 all_reduce of 2 on "
                          "communicator 0"));
  world.clear();
  EXPECT_EQ(nccl.destroyed(), 0);
  EXPECT_EQ(nccl.aborted(), 2);
}

TEST(NcclCommunicator, AbortEndsWhatIsInProgress) {
  NcclStandIn nccl(2, minutes(5));
  Communicators world = world_over(nccl, 2);
  std::atomic<bool> begun = false;
  nccl.plant = [&](int, const NcclRecord& call) {
    begun = begun || call.kind == NcclRecord::Kind::AllReduce;
    return true;
  };
  const auto problems = on_all(world, [&](Communicator& device, size_t d, size_t) {
    device.make_group({0, 1});
    if (d == 1) {
      while (!begun) std::this_thread::yield();
      return world[0]->abort("enough"), device.abort("enough");  // in this order: device 0 is told
    }
    std::vector<float> x(5);
    device.all_reduce(0, 1, bytes(x), DataType::Float32);
  });
  EXPECT_THAT(problems.at(0), HasSubstr("stopped"));
  EXPECT_EQ(nccl.aborted(), 2);
}

// What `mistakes` is there to find.

NcclRecord init(int comm, int rank) {
  return {NcclRecord::Kind::Init, comm, rank, 2};
}
NcclRecord call(NcclRecord::Kind kind, int comm, int rank, size_t count, int peer = -1, int group = -1) {
  static int stream;
  return {kind, comm, rank, count, DataType::Float32, peer, group, &stream};
}
constexpr auto reduce = NcclRecord::Kind::AllReduce, gather = NcclRecord::Kind::AllGather,
               send = NcclRecord::Kind::Send, receive = NcclRecord::Kind::Receive;

TEST(NcclMistakes, NoneInWhatFits) {
  EXPECT_THAT(mistakes({{init(0, 0), init(1, 0), call(reduce, 0, 0, 8), call(send, 1, 0, 3, 1)},
                        {init(0, 1), init(1, 1), call(receive, 1, 1, 3, 0), call(reduce, 0, 1, 8)}}),
              IsEmpty());
}
TEST(NcclMistakes, OtherOrderOfMaking) {
  EXPECT_THAT(mistakes({{init(0, 0), init(1, 0)}, {init(1, 1), init(0, 1)}}),
              ElementsAre(HasSubstr("different orders")));
}
TEST(NcclMistakes, OtherCalls) {
  const auto with = [](const NcclRecord& other) {
    return mistakes({{init(0, 0), call(reduce, 0, 0, 8)}, {init(0, 1), other}});
  };
  EXPECT_THAT(with(call(reduce, 0, 1, 9)), ElementsAre(HasSubstr("all_reduce of 9")));
  EXPECT_THAT(with(call(gather, 0, 1, 8)), ElementsAre(HasSubstr("all_gather of 8")));
  NcclRecord other_type = call(reduce, 0, 1, 8);
  other_type.dtype = DataType::BFloat16;
  EXPECT_THAT(with(other_type), ElementsAre(HasSubstr("call 0")));
  EXPECT_THAT(with(init(1, 0)), ElementsAre(HasSubstr("nothing")));
}
TEST(NcclMistakes, OtherTransfers) {
  const auto with = [](const NcclRecord& other) {
    return mistakes({{init(0, 0), call(send, 0, 0, 8, 1, 0)}, {init(0, 1), other}});
  };
  EXPECT_THAT(with(call(receive, 0, 1, 8, 0, 0)), IsEmpty());
  EXPECT_THAT(with(call(receive, 0, 1, 7, 0, 0)), ElementsAre(HasSubstr("device 0 sends")));
  EXPECT_THAT(with(call(receive, 0, 1, 8, 0, 1)), ElementsAre(HasSubstr("device 0 sends")));
  EXPECT_THAT(with(init(1, 0)), ElementsAre(HasSubstr("device 0 sends")));
}
TEST(NcclMistakes, TwoStreams) {
  static int other;
  NcclRecord elsewhere = call(reduce, 0, 0, 8);
  elsewhere.stream = &other;
  EXPECT_THAT(mistakes({{init(0, 0), call(reduce, 0, 0, 8), elsewhere}}), ElementsAre(HasSubstr("two streams")));
}

}  // namespace
}  // namespace piper
