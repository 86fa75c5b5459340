// NCCL itself on one GPU: communicators of one rank, and how those end that cannot be made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "comm/devices.h"
#include "comm/gpu/gpu_world.h"
#include "comm/local/local_world.h"
#include "comm/nccl/library/nccl_library.h"
#include "comm/nccl/nccl_communicator.h"
#include "cuda/gpu_memory.h"
#include "cuda/own_queue.h"

namespace piper {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Communicators nccl_world(int devices, milliseconds timeout) {
  LocalOptions options;
  options.timeout = timeout;
  Communicators world = make_local_world(devices, options);
  for (auto& device : world)
    device = make_nccl_communicator(
        {make_nccl_calls(), make_nccl_device(), std::move(device), std::move(make_gpu_world(1)[0]), timeout});
  return world;
}

template <class T>
Bytes numbers(size_t count, T first) {
  std::vector<T> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = first + static_cast<T>(i % 100);
  Bytes raw(count * sizeof(T));
  std::memcpy(raw.data(), out.data(), raw.size());
  return raw;
}

std::span<std::byte> span(const GpuMemory& memory, size_t size) {
  return {memory.at(), size};
}

TEST(Nccl, EveryCallWithOneRank) {
  SKIP_WITHOUT_GPU();
  const Communicators world = nccl_world(1, seconds(60));
  Communicator& device = *world[0];
  const int group = device.make_group({0});
  device.connect(0, 0);
  OwnQueue queue;
  for (const size_t count : {6, 60'000, 6'000'000}) {
    const Bytes given = numbers<float>(count, 1), other = numbers<float>(count, 1000);
    const size_t size = given.size();
    const GpuMemory a(given), b(other);
    device.all_reduce(group, 1, span(a, size), DataType::Float32);
    queue.finish();
    EXPECT_TRUE(a.read() == given);
    device.reduce_scatter(group, 2, span(a, size), static_cast<int64_t>(size), span(b, size), DataType::Float32,
                          Communicator::Into::Add);
    queue.finish();
    Bytes sum(size);
    for (size_t i = 0; i < count; ++i) {
      float x = 0, y = 0;
      std::memcpy(&x, given.data() + 4 * i, 4);
      std::memcpy(&y, other.data() + 4 * i, 4);
      x += y;
      std::memcpy(sum.data() + 4 * i, &x, 4);
    }
    EXPECT_TRUE(b.read() == sum);
    device.reduce_scatter(group, 3, span(a, size), static_cast<int64_t>(size), span(b, size), DataType::Float32,
                          Communicator::Into::Replace);
    queue.finish();
    EXPECT_TRUE(b.read() == given);
    const GpuMemory c(other), d(other);
    device.all_gather(group, 4, span(a, size), span(c, size), static_cast<int64_t>(size));
    device.all_to_all(group, 5, span(a, size), static_cast<int64_t>(size / 2), span(d, size),
                      static_cast<int64_t>(size / 3));
    queue.finish();
    EXPECT_TRUE(c.read() == given);
    EXPECT_TRUE(d.read() == given);
    const GpuMemory e(other);
    device.send(0, 6, span(a, size));
    device.receive(0, 6, span(e, size));
    queue.finish();
    EXPECT_TRUE(e.read() == given);
  }
  for (const DataType dtype : {DataType::Float64, DataType::BFloat16}) {
    const Bytes given = dtype == DataType::Float64 ? numbers<double>(5000, 1) : numbers<int16_t>(5000, 0x3f80);
    const GpuMemory a(given);
    device.all_reduce(group, 1, span(a, given.size()), dtype);
    queue.finish();
    EXPECT_TRUE(a.read() == given);
  }
  EXPECT_FALSE(device.trouble());
}

/// As an all-to-all between several makes them.
TEST(Nccl, GroupedSendsAndReceivesToItself) {
  SKIP_WITHOUT_GPU();
  const auto calls = make_nccl_calls();
  OwnQueue queue;
  NcclCalls::Id id{};
  ASSERT_EQ(calls->make_id(id).kind, NcclStatus::Kind::Done);
  NcclCalls::Comm comm = nullptr;
  const auto settle = [&](NcclStatus status) {
    while (status.kind == NcclStatus::Kind::InProgress) status = calls->status(comm);
    ASSERT_EQ(status.kind, NcclStatus::Kind::Done) << status.problem;
  };
  settle(calls->init(comm, 1, id, 0));
  const Bytes given = numbers<float>(30'000, 1);
  const GpuMemory a(given), b(Bytes(given.size()));
  calls->group_start();
  for (size_t part = 0; part < 3; ++part) {
    const size_t size = given.size() / 3;
    calls->send(a.at() + part * size, size, 0, comm, queue.queue.stream);
    calls->receive(b.at() + part * size, size, 0, comm, queue.queue.stream);
  }
  settle(calls->group_end());
  queue.finish();
  EXPECT_TRUE(b.read() == given);
  settle(calls->finalize(comm));
  calls->destroy(comm);
}

TEST(Nccl, CallsCanBeRecordedInAGraph) {
  SKIP_WITHOUT_GPU();
  const Communicators world = nccl_world(1, seconds(60));
  Communicator& device = *world[0];
  const int group = device.make_group({0});
  OwnQueue queue;
  const Bytes given = numbers<float>(60'000, 1);
  const size_t size = given.size();
  const GpuMemory a(given), b(Bytes(size, std::byte{})), c(Bytes(size, std::byte{}));
  const auto work = [&] {
    device.all_reduce(group, 1, span(a, size), DataType::Float32);
    device.all_gather(group, 2, span(a, size), span(b, size), static_cast<int64_t>(size));
    device.all_to_all(group, 3, span(b, size), static_cast<int64_t>(size / 2), span(c, size),
                      static_cast<int64_t>(size / 3));
  };
  work();  // connects
  queue.finish();
  check_cuda(cudaMemset(b.at(), 0, size), "clear memory");
  check_cuda(cudaMemset(c.at(), 0, size), "clear memory");
  check_cuda(cudaStreamBeginCapture(queue.queue.stream, cudaStreamCaptureModeThreadLocal), "record a graph");
  work();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  check_cuda(cudaStreamEndCapture(queue.queue.stream, &graph), "end a graph");
  check_cuda(cudaGraphInstantiate(&made, graph, 0), "make a graph");
  EXPECT_TRUE(c.read() == Bytes(size, std::byte{}));  // nothing has run
  for (int i = 0; i < 3; ++i) check_cuda(cudaGraphLaunch(made, queue.queue.stream), "launch a graph");
  queue.finish();
  EXPECT_TRUE(c.read() == given);
  cudaGraphExecDestroy(made);  // before the communicator, which waits for its graphs
  cudaGraphDestroy(graph);
}

/// The other process has the id and is gone: there is a message, the end does not hang, and the next
/// communicator works.
TEST(Nccl, WhoNeverComesIsADeadline) {
  SKIP_WITHOUT_GPU();
  {
    LocalOptions options;
    options.timeout = seconds(10);
    Communicators host_communicators = make_local_world(2, options);
    const auto device = make_nccl_communicator({make_nccl_calls(), make_nccl_device(), std::move(host_communicators[0]),
                                                std::move(make_gpu_world(1)[0]), seconds(3)});
    std::thread gone([&] {
      NcclCalls::Id id{};
      host_communicators[1]->receive(0, 0, id);
    });
    try {
      device->make_group({0, 1});
      ADD_FAILURE() << "a communicator was made without its second member";
    } catch (const CommunicationError& problem) {
      EXPECT_THAT(problem.what(), HasSubstr("have come in time"));
    }
    gone.join();
  }
  const Communicators again = nccl_world(1, seconds(60));
  EXPECT_EQ(again[0]->make_group({0}), 0);
}

/// A send to itself that nothing receives: NCCL says so, and the communicator can still be aborted.
TEST(Nccl, WhatFailsIsTold) {
  SKIP_WITHOUT_GPU();
  const auto calls = make_nccl_calls();
  OwnQueue queue;
  NcclCalls::Id id{};
  NcclCalls::Comm comm = nullptr;
  ASSERT_EQ(calls->make_id(id).kind, NcclStatus::Kind::Done);
  NcclStatus status = calls->init(comm, 1, id, 0);
  while (status.kind == NcclStatus::Kind::InProgress) status = calls->status(comm);
  ASSERT_EQ(status.kind, NcclStatus::Kind::Done) << status.problem;
  const GpuMemory a(Bytes(64));
  status = calls->send(a.at(), 64, 0, comm, queue.queue.stream);
  while (status.kind == NcclStatus::Kind::InProgress) status = calls->status(comm);
  EXPECT_EQ(status.kind, NcclStatus::Kind::Failed);
  EXPECT_NE(status.problem, "");
  calls->abort(comm);
  const Communicators again = nccl_world(1, seconds(60));
  EXPECT_EQ(again[0]->make_group({0}), 0);
}

/// NCCL refuses two ranks on one GPU; both hear it, and both end.
TEST(Nccl, WhatCannotBeMadeIsAborted) {
  SKIP_WITHOUT_GPU();
  {
    const Communicators world = nccl_world(2, seconds(20));
    const auto problems = on_all(world, [](Communicator& device, size_t, size_t) { device.make_group({0, 1}); });
    for (const auto& [device, problem] : problems)
      EXPECT_THAT(problem, HasSubstr("cannot make a communicator of NCCL")) << device;
  }
  const Communicators again = nccl_world(1, seconds(60));
  EXPECT_EQ(again[0]->make_group({0}), 0);
}

}  // namespace
}  // namespace piper
