// Processes that find each other, and agree on who goes on: here threads are processes.
#include "comm/tcp/tcp_rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <future>
#include <thread>

#include "comm/processes/process_world.h"
#include "comm/tcp/tcp_connections.h"
#include "comm/tcp/tcp_transport.h"

namespace piper {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

/// A host that decides on a thread of its own, until the test ends.
class Host {
 public:
  explicit Host(int places, int spares = 0, TcpRendezvousHost::Limits limits = {.first = 5min, .again = 5min})
      : host_("127.0.0.1", places, spares, limits), thread_([this] { serve(); }) {}
  ~Host() { leave(); }

  std::string address() const { return host_.address(); }
  /// What it has decided so far.
  std::vector<TcpRendezvousHost::Decision> leave() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
    return decisions_;
  }

 private:
  void serve() {
    while (!ended_)
      if (auto decision = host_.serve(5ms)) decisions_.push_back(*std::move(decision));
  }

  TcpRendezvousHost host_;
  std::vector<TcpRendezvousHost::Decision> decisions_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

std::future<TcpRendezvous::Epoch> coming(TcpRendezvous& process) {
  return std::async(std::launch::async, [&] { return process.come(); });
}

std::string end_of(TcpRendezvous& process) {
  try {
    process.come();
  } catch (const RendezvousClosed& over) {
    return over.what();
  }
  return "";
}

std::string refusal_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const CommunicationError& problem) {
    return problem.what();
  }
  return "";
}

TEST(TcpRendezvous, AllGetTheSameDoorsAndTheirOwnPlaces) {
  Host host(3);
  std::vector<std::unique_ptr<TcpRendezvous>> processes;
  for (const int number : {2, 0, 1}) processes.push_back(std::make_unique<TcpRendezvous>(number, host.address()));
  std::vector<std::future<TcpRendezvous::Epoch>> all;
  for (auto& process : processes) all.push_back(coming(*process));
  std::vector<TcpRendezvous::Epoch> epochs;
  for (auto& one : all) epochs.push_back(one.get());
  EXPECT_THAT((std::vector{epochs[0].rank, epochs[1].rank, epochs[2].rank}), ElementsAre(2, 0, 1));
  for (const TcpRendezvous::Epoch& epoch : epochs) {
    EXPECT_EQ(epoch.number, 0);
    EXPECT_THAT(epoch.doors, ElementsAre(processes[1]->door().address(), processes[2]->door().address(),
                                         processes[0]->door().address()));
  }
}

/// Two of three come again; the third is gone.
TEST(TcpRendezvous, ASpareGetsThePlaceOfWhoeverIsGone) {
  Host host(3, 1);
  TcpRendezvous zero(0, host.address()), two(2, host.address()), spare(3, host.address());
  std::optional<TcpRendezvous> one(std::in_place, 1, host.address());
  auto waiting = coming(spare);
  {
    auto a = coming(zero), b = coming(*one), c = coming(two);
    for (auto* first : {&a, &b, &c}) first->wait();
  }
  one.reset();
  auto a = coming(zero), c = coming(two);
  const TcpRendezvous::Epoch at_zero = a.get(), at_two = c.get(), at_spare = waiting.get();
  EXPECT_THAT((std::vector{at_zero.rank, at_two.rank, at_spare.rank}), ElementsAre(0, 2, 1));
  EXPECT_THAT((std::vector{at_zero.number, at_two.number, at_spare.number}), ElementsAre(1, 1, 1));
  EXPECT_THAT(at_zero.doors, ElementsAre(zero.door().address(), spare.door().address(), two.door().address()));
  EXPECT_EQ(at_two.doors, at_zero.doors);
  EXPECT_EQ(at_spare.doors, at_zero.doors);
  const auto decisions = host.leave();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_THAT(decisions[1].lost, ElementsAre(1));
  EXPECT_THAT(decisions[1].placed, ElementsAre(testing::Pair(1, 3)));
}

TEST(TcpRendezvous, EachVacantPlaceGetsASpareOfItsOwn) {
  Host host(3, 2);
  std::optional<TcpRendezvous> zero(std::in_place, 0, host.address()), two(std::in_place, 2, host.address());
  TcpRendezvous one(1, host.address()), three(3, host.address()), four(4, host.address());
  auto a = coming(three), b = coming(four);
  {
    auto c = coming(*zero), d = coming(one), e = coming(*two);
    for (auto* first : {&c, &d, &e}) first->wait();
  }
  zero.reset();
  two.reset();
  const TcpRendezvous::Epoch epoch = one.come();
  EXPECT_EQ(a.get().rank, 0);
  EXPECT_EQ(b.get().rank, 2);
  EXPECT_THAT(epoch.doors, ElementsAre(three.door().address(), one.door().address(), four.door().address()));
}

/// All that knew it are lost in the end; those that are left came later, and know it from the host.
TEST(TcpRendezvous, WhatWasDoneIsKnownToThoseWhoComeLater) {
  Host host(2, 2);
  std::optional<TcpRendezvous> zero(std::in_place, 0, host.address()), one(std::in_place, 1, host.address());
  TcpRendezvous two(2, host.address()), three(3, host.address());
  auto later = coming(two), last = coming(three);
  {
    auto a = coming(*zero), b = coming(*one);
    EXPECT_EQ(a.get().done, 0);
    b.wait();
  }
  one.reset();
  EXPECT_EQ(zero->come(7).done, 7);
  EXPECT_EQ(later.get().done, 7);
  zero.reset();
  EXPECT_EQ(two.come(0).done, 7);
  EXPECT_EQ(last.get().done, 7);
}

/// As a process that is stopped.
TEST(TcpRendezvous, WhoeverDoesNotComeAgainInTimeIsLostAndLearnsIt) {
  Host host(2, 1, {.first = 5min, .again = 200ms});
  TcpRendezvous zero(0, host.address()), one(1, host.address()), spare(2, host.address());
  auto waiting = coming(spare);
  {
    auto a = coming(zero), b = coming(one);
    a.wait(), b.wait();
  }
  EXPECT_EQ(zero.come().number, 1);
  EXPECT_EQ(waiting.get().rank, 1);
  EXPECT_EQ(end_of(one), "the launcher has ended the connection");
}

/// A survivor that has missed an agreement has the doors' addresses, and stays outside.
TEST(TcpRendezvous, WhoeverHasAnOlderEpochStaysOutside) {
  const TcpDoor doors[] = {TcpDoor("127.0.0.1"), TcpDoor("127.0.0.1")};
  const std::vector<std::string> addresses = {doors[0].address(), doors[1].address()};
  std::unique_ptr<Transport> late;
  std::thread missed([&] { late = make_tcp_transport(1, doors[1], addresses, 1min, 6); });
  EXPECT_THAT(refusal_of([&] { make_tcp_transport(0, doors[0], addresses, 500ms, 7); }),
              HasSubstr("rank 1 does not come"));
  missed.join();
  std::thread other([&] { EXPECT_EQ(refusal_of([&] { make_tcp_transport(1, doors[1], addresses, 1min, 7); }), ""); });
  EXPECT_EQ(refusal_of([&] { make_tcp_transport(0, doors[0], addresses, 1min, 7); }), "");
  other.join();
}

TEST(TcpRendezvous, WithoutASpareTheJobEnds) {
  Host host(2);
  TcpRendezvous zero(0, host.address());
  std::optional<TcpRendezvous> one(std::in_place, 1, host.address());
  {
    auto a = coming(zero), b = coming(*one);
    a.wait(), b.wait();
  }
  one.reset();
  EXPECT_EQ(end_of(zero), "1 process is lost, and there are 0 spares");
  const auto decisions = host.leave();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_THAT(decisions[1].end, HasSubstr("1 process is lost"));
}

TEST(TcpRendezvous, ASpareThatIsNotNeededLearnsIt) {
  TcpRendezvousHost host("127.0.0.1", 1, 1, {.first = 5min, .again = 5min});
  TcpRendezvous zero(0, host.address()), spare(1, host.address());
  auto first = coming(zero);
  auto waiting = std::async(std::launch::async, [&] { return end_of(spare); });
  while (first.wait_for(0s) != std::future_status::ready) host.serve(5ms);
  host.end("all is done");
  while (waiting.wait_for(0s) != std::future_status::ready) host.serve(5ms);
  EXPECT_TRUE(spare.not_needed());
  EXPECT_FALSE(zero.not_needed());
}

/// Nothing is decided because a process ends: the others may be about to, too.
TEST(TcpRendezvous, AProcessThatHasEndedDisturbsNobody) {
  Host host(2);
  TcpRendezvous zero(0, host.address());
  std::optional<TcpRendezvous> one(std::in_place, 1, host.address());
  {
    auto a = coming(zero), b = coming(*one);
    a.wait(), b.wait();
  }
  one.reset();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(host.leave().size(), 1u);
}

TEST(TcpRendezvous, WhoeverDoesNotComeAtAllIsNamed) {
  Host host(2, 0, {.first = 3s, .again = 5min});
  TcpRendezvous zero(0, host.address());
  EXPECT_EQ(end_of(zero), "process 1 does not come");
}

/// On another host nothing else would tell it.
TEST(TcpRendezvous, WhoeverTakesPartHearsSignalsAndThatTheHostIsGone) {
  std::promise<void> gone;
  std::promise<int> heard;
  std::optional<TcpRendezvousHost> host(std::in_place, "127.0.0.1", 1, 0,
                                        TcpRendezvousHost::Limits{.first = 5min, .again = 5min});
  TcpRendezvous zero(0, host->address(),
                     {.gone = [&] { gone.set_value(); }, .signal = [&](int signal) { heard.set_value(signal); }});
  auto first = coming(zero);
  while (first.wait_for(0s) != std::future_status::ready) host->serve(5ms);
  EXPECT_EQ(host->process_of(0), getpid());
  EXPECT_EQ(host->process_of(1), 0);
  EXPECT_TRUE(host->pass_on(SIGUSR1, 0));
  EXPECT_FALSE(host->pass_on(SIGUSR1, 1));
  EXPECT_EQ(heard.get_future().get(), SIGUSR1);
  host.reset();
  gone.get_future().wait();
}

TEST(TcpRendezvous, StrangersTakeNoPlace) {
  Host host(1);
  DoorAddress wrong = parse_address(host.address());
  ++wrong.secret;
  TcpRendezvous stranger(0, wrong.host + " " + std::to_string(wrong.port) + " " + std::to_string(wrong.secret));
  EXPECT_EQ(end_of(stranger), "the launcher has ended the connection");
  const Socket garbage = connect_to("the host", parse_address(host.address()), std::chrono::steady_clock::now() + 1min);
  const std::string noise(10'000, 'x');
  EXPECT_GT(::send(garbage.number(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
  TcpRendezvous zero(0, host.address());
  EXPECT_EQ(zero.come().rank, 0);
}

}  // namespace
}  // namespace piper
