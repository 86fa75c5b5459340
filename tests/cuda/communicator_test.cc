// Devices that share a GPU communicate as threads of one process do, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "comm/devices.h"
#include "comm/gpu/gpu_world.h"
#include "comm/gpu/queue.h"
#include "comm/local/local_world.h"
#include "cuda/gpu_memory.h"
#include "cuda/own_queue.h"

namespace piper {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_numbers(DataType dtype, size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Bytes out(count * static_cast<size_t>(bytes_of(dtype)));
  for (size_t i = 0; i < count; ++i) {
    const float x = normal(random) * (random() % 2 ? 1e-3f : 1e3f);
    const double wide = x;
    if (dtype == DataType::Float64) std::memcpy(out.data() + 8 * i, &wide, 8);
    if (dtype == DataType::Float32) std::memcpy(out.data() + 4 * i, &x, 4);
    if (dtype == DataType::BFloat16) std::memcpy(out.data() + 2 * i, reinterpret_cast<const std::byte*>(&x) + 2, 2);
  }
  return out;
}

/// Calls of a communicator on one device, on memory of the host or of the GPU.
struct Calls {
  DataType dtype = DataType::Float32;
  size_t part = 0;  // numbers
  static constexpr size_t members = 4;

  Bytes all_at(size_t device, int call) const {
    return random_numbers(dtype, members * part, static_cast<unsigned>(device * 100) + static_cast<unsigned>(call));
  }
  /// `memory(bytes)` makes memory of the world from bytes, with `at()` and `read()`; `start` returns a thread that does
  /// something, or none if it has done it. What every call leaves behind.
  template <class MakeMemory, class Start>
  std::vector<Bytes> run(Communicator& device, size_t d, const MakeMemory& memory, const Start& start) const {
    const size_t bytes = part * static_cast<size_t>(bytes_of(dtype));
    std::vector<Bytes> out;
    const auto span = [](const auto& in, size_t size) { return std::span<std::byte>(in->at(), size); };
    for (const auto& [sequence, how] : {std::pair{1, Combine::Sum}, std::pair{2, Combine::Max}}) {
      const auto data = memory(all_at(d, 1));
      device.all_reduce(0, sequence, span(data, members * bytes), dtype, how);
      out.push_back(data->read());
    }
    for (const size_t runs : {1, 3}) {
      if (part % runs != 0) continue;
      const auto run = static_cast<int64_t>(bytes / runs), sequence = static_cast<int64_t>(10 * runs);
      for (const auto into : {Communicator::Into::Replace, Communicator::Into::Add}) {
        const auto whole = memory(all_at(d, 2)), mine = memory(random_numbers(dtype, part, 77));
        device.reduce_scatter(0, sequence + (into == Communicator::Into::Add ? 2 : 3), span(whole, members * bytes),
                              run, span(mine, bytes), dtype, into);
        out.push_back(mine->read());
      }
      const auto mine = memory(random_numbers(dtype, part, static_cast<unsigned>(d))), whole = memory(all_at(d, 4));
      device.all_gather(0, sequence + 4, span(mine, bytes), span(whole, members * bytes), run);
      out.push_back(whole->read());
    }
    for (const int64_t runs : {1, 3}) {
      if (bytes % static_cast<size_t>(runs) != 0) continue;
      const auto from = memory(all_at(d, 5)), to = memory(all_at(d, 6));
      device.all_to_all(0, 5 + runs, span(from, members * bytes), static_cast<int64_t>(bytes) / runs,
                        span(to, members * bytes), static_cast<int64_t>(bytes));
      out.push_back(to->read());
    }
    {  // everybody sends before anybody receives
      const auto from = memory(all_at(d, 7)), to = memory(all_at(d, 8));
      std::thread sender =
          start([&] { device.send(static_cast<int>((d + 1) % members), 9, span(from, members * bytes)); });
      device.receive(static_cast<int>((d + members - 1) % members), 9, span(to, members * bytes));
      if (sender.joinable()) sender.join();
      out.push_back(to->read());
      from->read();
    }
    return out;
  }
};

class HostMemory {
 public:
  explicit HostMemory(Bytes bytes) : bytes_(std::move(bytes)) {}
  std::byte* at() { return bytes_.data(); }
  const Bytes& read() const { return bytes_; }

 private:
  Bytes bytes_;
};

/// Read when all work on the queue has been done.
class QueuedMemory {
 public:
  QueuedMemory(const Bytes& bytes, OwnQueue& queue) : memory_(bytes), queue_(queue) {}
  std::byte* at() { return memory_.at(); }
  Bytes read() const {
    queue_.finish();
    return memory_.read();
  }

 private:
  GpuMemory memory_;
  OwnQueue& queue_;
};

TEST(GpuCommunicator, GivesTheBitsOfThreads) {
  SKIP_WITHOUT_GPU();
  for (const DataType dtype : {DataType::Float64, DataType::Float32, DataType::BFloat16})
    for (const size_t part : {1, 3, 24, 5000, 300'003}) {
      const Calls calls{dtype, part};
      const Communicators threads = make_local_world(Calls::members), gpu = make_gpu_world(Calls::members);
      for (const Communicators* world : {&threads, &gpu}) make_process_groups(*world, {{2, 0, 3, 1}});
      std::vector<std::vector<Bytes>> expected(Calls::members), seen(Calls::members);
      EXPECT_THAT(on_all(gpu,
                         [&](Communicator& device, size_t d, size_t) {
                           OwnQueue queue;
                           const auto memory = [&](const Bytes& bytes) {
                             return std::make_unique<QueuedMemory>(bytes, queue);
                           };
                           seen[d] = calls.run(device, d, memory, [](const std::function<void()>& send) {
                             send();  // which waits for nobody
                             return std::thread();
                           });
                         }),
                  none_failed);
      EXPECT_THAT(on_all(threads,
                         [&](Communicator& device, size_t d, size_t) {
                           const auto memory = [](const Bytes& bytes) { return std::make_unique<HostMemory>(bytes); };
                           expected[d] = calls.run(device, d, memory,
                                                   [](const std::function<void()>& send) { return std::thread(send); });
                         }),
                  none_failed);
      EXPECT_TRUE(seen == expected) << static_cast<int>(dtype) << " " << part;
    }
}

TEST(GpuCommunicator, WaitsEndAtTheDeadlineAndWithTheJob) {
  SKIP_WITHOUT_GPU();
  const GpuMemory memory(Bytes(64));
  const Communicators late = make_gpu_world(2, std::chrono::milliseconds(50));
  const auto receives = [&](Communicator& device, size_t d, size_t) {
    OwnQueue queue;
    if (d == 0) device.receive(1, 1, {memory.at(), 64});
  };
  EXPECT_THAT(on_all(late, receives)[0], testing::HasSubstr("did not come in time"));
  const Communicators stopped = make_gpu_world(2);
  const auto problems = on_all(stopped, [&](Communicator& device, size_t d, size_t) {
    if (d == 1) return device.abort("enough");
    OwnQueue queue;
    device.send(1, 2, {memory.at(), 64});
    for (const AwaitReader& reader : queue.queue.readers) reader(queue.queue.stream);
  });
  EXPECT_THAT(problems.at(0), testing::HasSubstr("enough"));
}

}  // namespace
}  // namespace piper
