// What is special about TCP: who comes in, and who is gone.
#include "comm/tcp/tcp_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cctype>
#include <filesystem>
#include <sstream>
#include <thread>

#include "comm/communicator.h"
#include "comm/processes/process_world.h"
#include "comm/tcp/tcp_address.h"

namespace piper {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// Both ends of a job of two.
struct Pair {
  std::unique_ptr<Transport> zero, one;
};
Pair make_pair_of_transports() {
  const TcpDoor doors[] = {TcpDoor("127.0.0.1"), TcpDoor("127.0.0.1")};
  const std::vector<std::string> addresses = {doors[0].address(), doors[1].address()};
  Pair out;
  std::thread other([&] { out.one = make_tcp_transport(1, doors[1], addresses, 1min); });
  out.zero = make_tcp_transport(0, doors[0], addresses, 1min);
  other.join();
  return out;
}

/// Comes in, and has said nothing yet.
Socket stranger_at(const TcpDoor& door) {
  std::string host;
  int port = 0;
  std::istringstream(door.address()) >> host >> port;
  const Resolved place = resolve(host, port);
  Socket out(::socket(place.family, SOCK_STREAM, 0));
  EXPECT_EQ(connect(out.number(), place.get(), place.length), 0);
  return out;
}

std::string problem_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const CommunicationError& problem) {
    return problem.what();
  }
  return "";
}

TEST(TcpTransport, ControlMessagesAndPiecesShareAConnection) {
  const Pair pair = make_pair_of_transports();
  std::vector<std::byte> sent(200'000, std::byte{7}), received(200'000);
  int send_mark = 0, receive_mark = 0;
  pair.one->receive_piece(0, 5, received, &receive_mark);
  pair.zero->send_control(1, std::vector<std::byte>(3, std::byte{1}), 4);
  pair.zero->send_piece(1, 5, sent, &send_mark);
  pair.zero->send_control(1, std::vector<std::byte>(2, std::byte{2}), 0);
  std::string order;
  for (const auto until = std::chrono::steady_clock::now() + 5min;
       order.size() < 6 && std::chrono::steady_clock::now() < until;)
    for (Transport* transport : {pair.zero.get(), pair.one.get()}) {
      std::vector<Transport::Event> events;
      transport->poll(events);
      for (const Transport::Event& event : events) {
        if (event.kind == Transport::Event::Kind::ControlSent) order += event.use == 4 ? 'a' : 'c';
        if (event.kind == Transport::Event::Kind::ControlCame) order += event.control.size() == 3 ? 'A' : 'C';
        if (event.kind == Transport::Event::Kind::PieceDone) order += event.piece == &send_mark ? 'b' : 'B';
      }
    }
  std::string came, went;
  for (const char c : order) (std::isupper(c) ? came : went) += c;
  EXPECT_EQ(came, "ABC");
  EXPECT_EQ(went, "abc");
  EXPECT_EQ(received, sent);
  EXPECT_FALSE(pair.zero->busy() || pair.one->busy());
}

TEST(TcpTransport, WhatNobodySendsCanBeCancelled) {
  const Pair pair = make_pair_of_transports();
  std::vector<std::byte> memory(10);
  int mark = 0;
  pair.zero->receive_piece(1, 1, memory, &mark);
  EXPECT_TRUE(pair.zero->busy());
  pair.zero->cancel_receives(&mark);
  EXPECT_FALSE(pair.zero->busy());
  std::vector<Transport::Event> events;
  pair.zero->poll(events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Transport::Event::Kind::PieceCancelled);
  EXPECT_EQ(events[0].bytes, 10u);
}

TEST(TcpTransport, AProcessThatEndsIsGone) {
  Pair pair = make_pair_of_transports();
  pair.one.reset();
  std::vector<Transport::Event> events;
  for (const auto until = std::chrono::steady_clock::now() + 5min;
       events.empty() && std::chrono::steady_clock::now() < until;)
    pair.zero->poll(events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Transport::Event::Kind::Gone);
  EXPECT_EQ(events[0].rank, 1);
  pair.zero->send_control(1, std::vector<std::byte>(3), 0);  // to nobody
  EXPECT_FALSE(pair.zero->busy());
}

TEST(TcpTransport, StrangersStayOutside) {
  const TcpDoor door("127.0.0.1");
  const Socket stranger = stranger_at(door);
  const char hello[32] = "piper 2";  // the protocol, not the secret
  ASSERT_EQ(::send(stranger.number(), hello, sizeof hello, 0), static_cast<ssize_t>(sizeof hello));
  EXPECT_THAT(problem_of([&] {
                make_tcp_transport(0, door, {door.address(), ""}, 300ms);
              }),
              HasSubstr("rank 1 does not come"));
}

/// They would take longer than the timeout, one after the other.
TEST(TcpTransport, SilentStrangersKeepNobodyWaiting) {
  const TcpDoor doors[] = {TcpDoor("127.0.0.1"), TcpDoor("127.0.0.1")};
  const std::vector<std::string> addresses = {doors[0].address(), doors[1].address()};
  std::vector<Socket> strangers;
  for (int i = 0; i < 30; ++i) strangers.push_back(stranger_at(doors[0]));
  std::thread other([&] { EXPECT_EQ(problem_of([&] { make_tcp_transport(1, doors[1], addresses, 2min); }), ""); });
  EXPECT_EQ(problem_of([&] { make_tcp_transport(0, doors[0], addresses, 2min); }), "");
  other.join();
}

/// Also more of them than are listened to at once, and those who say a part of something.
TEST(TcpTransport, AFloodOfStrangersIsNoObstacle) {
  const TcpDoor doors[] = {TcpDoor("127.0.0.1"), TcpDoor("127.0.0.1")};
  const std::vector<std::string> addresses = {doors[0].address(), doors[1].address()};
  std::vector<Socket> strangers;
  for (int i = 0; i < 400; ++i) {
    strangers.push_back(stranger_at(doors[0]));
    ASSERT_EQ(::send(strangers.back().number(), "piper", 5, 0), 5);
  }
  std::thread other([&] { EXPECT_EQ(problem_of([&] { make_tcp_transport(1, doors[1], addresses, 2min); }), ""); });
  EXPECT_EQ(problem_of([&] { make_tcp_transport(0, doors[0], addresses, 2min); }), "");
  other.join();
}

/// As MPI does where somebody is stopped before it has joined.
TEST(ProcessWorld, AJoinThatNeverReturnsIsLeftBehind) {
  const MakeTransport never = []() -> std::unique_ptr<Transport> {
    while (true) std::this_thread::sleep_for(1h);
  };
  EXPECT_THROW(ProcessWorld(never, 50ms), NobodyCame);
}

/// Worlds of this process: each joins in a thread of its own.
std::vector<std::unique_ptr<ProcessWorld>> join_all(const std::vector<const TcpDoor*>& doors, int epoch) {
  std::vector<std::string> addresses;
  for (const TcpDoor* door : doors) addresses.push_back(door->address());
  std::vector<std::unique_ptr<ProcessWorld>> out(doors.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < doors.size(); ++rank)
    threads.emplace_back([&, rank] {
      out[rank] = std::make_unique<ProcessWorld>(
          [&] { return make_tcp_transport(static_cast<int>(rank), *doors[rank], addresses, 1min, epoch); });
    });
  for (std::thread& thread : threads) thread.join();
  return out;
}

/// Of a large all-reduce among all; what goes wrong, by rank.
std::vector<std::string> sum_among(const std::vector<ProcessWorld*>& worlds) {
  std::vector<std::string> out(worlds.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < worlds.size(); ++i)
    threads.emplace_back([&, i] {
      const auto devices = worlds[i]->make(worlds[i]->ranks(), 5min);
      std::vector<int> all;
      for (int rank = 0; rank < worlds[i]->ranks(); ++rank) all.push_back(rank);
      std::vector<float> x(1'000'000, 1);
      out[i] = problem_of([&] {
        const int group = devices[0]->make_group(all);
        devices[0]->all_reduce(group, 0, std::as_writable_bytes(std::span(x)), DataType::Float32);
      });
      if (out[i].empty() && x[999'999] != static_cast<float>(all.size())) out[i] = "another sum";
    });
  for (std::thread& thread : threads) thread.join();
  return out;
}

size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

/// Time after time: the others are told who is lost, leave without waiting, and go on among themselves.
TEST(ProcessWorld, TheOthersOfALostRankJoinAgain) {
  const std::vector<TcpDoor> doors = [] {
    std::vector<TcpDoor> out;
    for (int i = 0; i < 5; ++i) out.emplace_back("127.0.0.1");
    return out;
  }();
  std::vector<const TcpDoor*> left;
  for (const TcpDoor& door : doors) left.push_back(&door);
  const size_t files = open_files();
  for (int epoch = 0; left.size() > 1; ++epoch) {
    auto worlds = join_all(left, epoch);
    std::vector<ProcessWorld*> all;
    for (const auto& world : worlds) all.push_back(world.get());
    EXPECT_THAT(sum_among(all), testing::Each("")) << "epoch " << epoch;
    for (ProcessWorld* world : all) EXPECT_THAT(world->lost(), testing::IsEmpty());
    worlds.back()->leave();
    worlds.back().reset();
    left.pop_back();
    all.pop_back();
    const std::string gone = "rank " + std::to_string(left.size()) + " is gone";
    EXPECT_THAT(sum_among(all), testing::Each(HasSubstr(gone)));
    for (ProcessWorld* world : all) {
      EXPECT_THAT(world->lost(), testing::ElementsAre(static_cast<int>(left.size())));
      world->leave();
    }
  }
  EXPECT_EQ(open_files(), files);
}

TEST(TcpTransport, AClosedDoorIsSaid) {
  const TcpDoor mine("127.0.0.1");
  const std::string closed = TcpDoor("127.0.0.1").address();
  EXPECT_THAT(problem_of([&] {
                make_tcp_transport(1, mine, {closed, mine.address()}, 1s);
              }),
              HasSubstr("rank 0 cannot be reached at 127.0.0.1: Connection refused"));
  EXPECT_THAT(problem_of([] { TcpDoor door("192.0.2.1"); }), HasSubstr("cannot be reached at 192.0.2.1"));
  EXPECT_THAT(problem_of([] { TcpDoor door("nowhere"); }), HasSubstr("nowhere is no address"));
}

}  // namespace
}  // namespace piper
