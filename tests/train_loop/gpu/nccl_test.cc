// Plans of several devices on a GPU, each device in a job of its own, as with NCCL: all of comm/nccl but NCCL, in whose
// place the devices' memory on the one GPU is copied. Bit by bit what devices compute that share the GPU in one job.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

#include "comm/gpu/gpu_world.h"
#include "comm/gpu/queue.h"
#include "comm/nccl/library/nccl_library.h"
#include "comm/nccl/nccl_communicator.h"
#include "runtime/gpu/gpu_processor.h"
#include "train_loop/covering.h"
#include "train_loop/legs.h"
#include "train_loop/nccl/run_apart.h"

namespace piper {
namespace {

Processor* gpu() {
  static const std::unique_ptr<Processor> found = [] {
    auto made = make_gpu_processor({.deterministic = true});
    return made ? std::move(*made) : nullptr;
  }();
  return found.get();
}

/// What all devices share: a world on the GPU for each communicator.
class Carriers {
 public:
  int make_id() {
    const std::lock_guard lock(mutex_);
    return ids_++;
  }
  std::unique_ptr<Communicator> take(int id, int ranks, int rank) {
    const std::lock_guard lock(mutex_);
    auto& world = worlds_[id];
    if (world.empty()) world = make_gpu_world(ranks, std::chrono::seconds(60));
    return std::move(world[static_cast<size_t>(rank)]);
  }

 private:
  std::mutex mutex_;
  int ids_ = 0;
  std::map<int, std::vector<std::unique_ptr<Communicator>>> worlds_;
};

/// A call waits until the other members have made theirs, and puts its work on the stream.
class CarriedCalls : public NcclCalls {
 public:
  explicit CarriedCalls(Carriers& carriers) : carriers_(carriers) {}

  NcclStatus make_id(Id& id) override {
    const int made = carriers_.make_id();
    std::memcpy(id.data(), &made, sizeof made);
    return {};
  }
  NcclStatus init(Comm& comm, int ranks, const Id& id, int rank) override {
    int number = 0;
    std::memcpy(&number, id.data(), sizeof number);
    auto* mine = new Mine;
    mine->carrier = carriers_.take(number, ranks, rank);
    mine->ranks = static_cast<size_t>(ranks);
    std::vector<int> all(mine->ranks);
    std::iota(all.begin(), all.end(), 0);
    mine->carrier->make_group(all);
    comm = mine;
    return {};
  }
  NcclStatus status(Comm) override { return {}; }
  void abort(Comm comm) override { delete &of(comm); }
  NcclStatus finalize(Comm) override { return {}; }
  void destroy(Comm comm) override { delete &of(comm); }

  NcclStatus group_start() override {
    grouping_ = true;
    return {};
  }
  NcclStatus group_end() override {  // sends wait for nobody, so they have been made
    grouping_ = false;
    for (const auto& receive : std::exchange(received_, {})) receive();
    // as with NCCL, what was sent may be overwritten by what is put on the stream next
    GpuQueue& queue = current_queue();
    for (const AwaitReader& reader : std::exchange(queue.readers, {})) reader(queue.stream);
    return {};
  }

  NcclStatus all_reduce(const void*, void* to, size_t count, DataType dtype, Combine how, Comm comm, Stream) override {
    of(comm).carrier->all_reduce(0, of(comm).next++, {static_cast<std::byte*>(to), count * size(dtype)}, dtype, how);
    return {};
  }
  NcclStatus reduce_scatter(const void* from, void* to, size_t count, DataType dtype, Comm comm, Stream) override {
    Mine& mine = of(comm);
    const size_t bytes = count * size(dtype);
    mine.carrier->reduce_scatter(0, mine.next++, {static_cast<const std::byte*>(from), bytes * mine.ranks},
                                 static_cast<int64_t>(bytes), {static_cast<std::byte*>(to), bytes}, dtype,
                                 Communicator::Into::Replace);
    return {};
  }
  NcclStatus all_gather(const void* from, void* to, size_t bytes, Comm comm, Stream) override {
    Mine& mine = of(comm);
    mine.carrier->all_gather(0, mine.next++, {static_cast<const std::byte*>(from), bytes},
                             {static_cast<std::byte*>(to), bytes * mine.ranks}, static_cast<int64_t>(bytes));
    return {};
  }
  NcclStatus send(const void* from, size_t bytes, int to, Comm comm, Stream) override {
    Mine& mine = of(comm);
    mine.carrier->send(to, mine.sent[to]++, {static_cast<const std::byte*>(from), bytes});
    return {};
  }
  NcclStatus receive(void* to, size_t bytes, int from, Comm comm, Stream) override {
    Mine& mine = of(comm);
    const auto work = [&mine, to, bytes, from, number = mine.received[from]++] {
      mine.carrier->receive(from, number, {static_cast<std::byte*>(to), bytes});
    };
    if (grouping_)
      received_.push_back(work);
    else
      work();
    return {};
  }

 private:
  struct Mine {
    std::unique_ptr<Communicator> carrier;
    size_t ranks = 0;
    int64_t next = 0;
    std::map<int, int64_t> sent, received;
  };
  static Mine& of(Comm comm) { return *static_cast<Mine*>(comm); }
  static size_t size(DataType dtype) { return static_cast<size_t>(bytes_of(dtype)); }

  Carriers& carriers_;
  bool grouping_ = false;  // one thread makes all calls of a device
  std::vector<std::function<void()>> received_;
};

class GpuNcclPlans : public testing::TestWithParam<size_t> {};

TEST_P(GpuNcclPlans, GiveTheBitsOfDevicesInOneJob) {
  if (!gpu()) GTEST_SKIP() << "there is no GPU here";
  const Combination& c = pairwise_covering().trained[GetParam()];
  if (c.grid.devices() == 1) GTEST_SKIP() << "one device";
  SCOPED_TRACE(c.describe() + "\n" + c.schedule());
  const Leg leg = legs_of(c)[0];
  const Subject subject{
      .kind = c.kind, .layers = c.layers(), .dtype = leg.dtype, .optimizer = leg.optimizer, .on = gpu()};
  const CapturedModel& model = captured(subject, {subject_batch / c.slices()});
  Result<Compiled> compiled = compile_for(model, c.schedule());
  ASSERT_TRUE(compiled) << render(compiled.error());
  const auto plan = std::make_shared<const Plan>(compiled->plan);
  TrainSettings settings = usual_settings(subject);
  settings.steps = 2;
  settings.job.run.processor = gpu();
  const Trained together = train(model_of(subject), model, plan, settings);
  Carriers carriers;
  const auto join = [&](std::unique_ptr<Communicator> host) {
    return make_nccl_communicator({std::make_shared<CarriedCalls>(carriers), make_nccl_device(), std::move(host),
                                   std::move(make_gpu_world(1)[0]), std::chrono::seconds(60)});
  };
  const Ran apart = run_apart(join, model_of(subject), model, plan, settings);
  EXPECT_THAT(apart.problems, testing::Each(""));
  for (int d = 0; d < c.grid.devices(); ++d) {
    const Trained& mine = apart.devices[static_cast<size_t>(d)];
    EXPECT_EQ(mine.losses, together.losses) << d;
    EXPECT_EQ(mine.norms, together.norms) << d;
    EXPECT_EQ(mine.bits, (std::map<int, uint64_t>{{d, together.bits.at(d)}})) << d;
  }
}
INSTANTIATE_TEST_SUITE_P(Pairwise, GpuNcclPlans,
                         testing::Range(size_t{0}, pairwise_covering().trained.size(), size_t{4}),
                         [](const auto& info) { return fmt::format("{:03}", info.param); });

}  // namespace
}  // namespace piper
