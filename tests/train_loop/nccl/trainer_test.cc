// The trainer of the Python package as `torchrun` would start it on several GPUs: processes that find each other over
// TCP, each with a GPU that no other has, joined by NCCL. Here processes are threads, GPUs this machine's processor,
// and something is in the place of NCCL.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "comm/processes/process_world.h"
#include "comm/tcp/tcp_transport.h"
#include "comm_nccl/stand_in.h"
#include "models/configurations.h"
#include "python/raised.h"
#include "python/trainer.h"
#include "schedule/schedule_text.h"

namespace piper::python {
namespace {

using std::chrono::seconds;

/// Computes here, and is joined with others as a GPU is.
class GpuInPlace : public Processor {
 public:
  explicit GpuInPlace(NcclStandIn& nccl) : nccl_(nccl) {}
  c10::Device device() const override { return host_.device(); }
  std::unique_ptr<Stream> make_stream(const StreamMaking& making) override { return host_.make_stream(making); }
  std::unique_ptr<DeviceSide> make_side(size_t ops) override { return host_.make_side(ops); }
  Graphs graphs() const override { return host_.graphs(); }
  std::unique_ptr<CudaGraph> make_graph() override { return host_.make_graph(); }
  std::unique_ptr<RecordedSeeds> make_seeds(size_t count) override { return host_.make_seeds(count); }
  bool memory_belongs_to_streams() const override { return host_.memory_belongs_to_streams(); }
  std::vector<std::unique_ptr<Communicator>> make_world(int, LocalOptions) override {
    throw std::logic_error("the devices are in several processes");
  }
  std::vector<std::unique_ptr<Communicator>> join(std::vector<std::unique_ptr<Communicator>> host_communicators,
                                                  std::chrono::milliseconds) override {
    EXPECT_EQ(host_communicators.size(), 1u);
    host_communicators[0] = nccl_.communicator(std::move(host_communicators[0]));
    return host_communicators;
  }
  void enter_thread() override { host_.enter_thread(); }
  void warm_up() override { host_.warm_up(); }
  void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                        int64_t count) override {
    host_.initialize_state(types, kind, weights, state, count);
  }
  void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step, const GradientScale& scale,
              std::byte* weights, const std::byte* gradients, std::byte* state, int64_t count,
              ElementPart part) override {
    host_.update(settings, types, step, scale, weights, gradients, state, count, part);
  }
  std::vector<double> read(std::span<const at::Tensor> scalars, std::span<const ElementSpan> ranges) override {
    return host_.read(scalars, ranges);
  }
  void finish() override { host_.finish(); }

 private:
  Processor& host_ = host_processor();
  NcclStandIn& nccl_;
};

Plan plan_of(const std::string& schedule) {
  Plan out;
  out.trainable = built(
      "[model]\narch = \"reference\"\nhidden = 16\nheads = 4\nvocab = 32\nseq = 4\nlayers = 4\n\n[step]\nbatch = "
      "8\nweights = \"float32\"\n",
      BuildOn::Meta);
  const Schedule parsed = unwrap(parse_schedule(make_source("step.piper", schedule)));
  out.captured = std::make_shared<const CapturedModel>(
      unwrap(capture_for(*out.trainable, unwrap(sketch(*out.trainable)), parsed, {}, true)));
  out.compiled = std::make_shared<const Compiled>(unwrap(compile(out.captured->graph(), parsed, {})));
  return out;
}

Tensors first_values(const TrainableModel& model) {
  Tensors out;
  for (const auto* tensors : {&model.meta.parameters, &model.meta.buffers})
    for (const NamedTensor& item : *tensors) {
      at::Tensor whole = at::empty(item.tensor.sizes(), item.tensor.options().device(at::kCPU));
      model.initialize(item.name, whole);
      out[item.name] = whole;
    }
  return out;
}

/// What a run gives, whoever makes it.
struct Given {
  std::vector<double> losses;
  Tensors weights, moments;
};
Given train(Trainer& trainer) {
  const TrainableModel& model = *trainer.plan().trainable;
  Given out;
  for (int64_t step = 0; step < 3; ++step) {
    std::vector<at::Tensor> batch;
    for (const InputSpec& input : model.inputs) {
      const int64_t count = model.step.batch * input.sample_sizes[0];
      batch.push_back(at::arange(count).mul(7 + step).remainder(model.vocabulary).view({model.step.batch, -1}));
    }
    std::vector<const at::Tensor*> inputs;
    for (const at::Tensor& input : batch) inputs.push_back(&input);
    OptimizerSettings optimizer;
    optimizer.learning_rate = 1e-2;
    const Step done = trainer.step(inputs, {optimizer, {}});
    out.losses.push_back(done.outcome.loss);
    out.losses.insert(out.losses.end(), done.microbatches.begin(), done.microbatches.end());
  }
  for (const NamedTensor& parameter : model.meta.parameters) {
    out.weights[parameter.name] = trainer.kept(parameter.name, Kept::Weight);
    out.moments[parameter.name] = trainer.kept(parameter.name, Kept::Moment2);
  }
  return out;
}

void expect_equal(const Given& a, const Given& b) {
  EXPECT_EQ(a.losses, b.losses);
  for (const auto& [name, weights] : b.weights) EXPECT_TRUE(at::equal(a.weights.at(name), weights)) << name;
  for (const auto& [name, moments] : b.moments) EXPECT_TRUE(at::equal(a.moments.at(name), moments)) << name;
}

class NcclTrainer : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(NcclTrainer, EqualsThreads) {
  const Plan plan = plan_of(GetParam().second);
  const Tensors first = first_values(*plan.trainable);
  Trainer alone(plan, first, {}, nullptr);
  const Given expected = train(alone);

  const auto ranks = template_of_device(plan.plan()).size();
  NcclStandIn nccl(static_cast<int>(ranks), seconds(60));
  std::vector<TcpDoor> doors;
  std::vector<std::string> addresses, visible;
  for (size_t rank = 0; rank < ranks; ++rank) {
    addresses.push_back(doors.emplace_back("127.0.0.1").address());
    visible.push_back("GPU " + std::to_string(rank));
  }
  std::vector<Given> given(ranks);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto world = std::make_shared<ProcessWorld>(
          [&] { return make_tcp_transport(static_cast<int>(rank), doors[rank], addresses, std::chrono::minutes(1)); });
      EXPECT_EQ(unwrap(take_gpu(*world, visible, timeouts_of(10))), static_cast<int>(rank));
      Tensors mine = first;
      if (rank != 0)  // those of rank 0 count
        for (auto& [name, value] : mine) value = at::zeros_like(value);
      Trainer trainer(plan, mine, {}, world, std::make_shared<GpuInPlace>(nccl));
      given[rank] = train(trainer);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Given& here : given) expect_equal(here, expected);
  EXPECT_THAT(mistakes(nccl.records()), testing::IsEmpty());
  for (const auto& device : nccl.records()) EXPECT_FALSE(device.empty());
}

/// Its watchdog asks them several times a second, also between steps and after a failure.
TEST(Trainer, KeepsTheProcessesItTrainsWith) {
  const Plan plan = plan_of(
      "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\nuse 1f1b(stages=stage, "
      "microbatches=mb)\n");
  const Tensors first = first_values(*plan.trainable);
  const TcpDoor doors[] = {TcpDoor("127.0.0.1"), TcpDoor("127.0.0.1")};
  const std::vector<std::string> addresses = {doors[0].address(), doors[1].address()};
  const auto process = [&](int rank) {
    auto world = std::make_shared<ProcessWorld>(
        [&] { return make_tcp_transport(rank, doors[rank], addresses, std::chrono::minutes(1)); });
    const std::weak_ptr<World> kept = world;
    Trainer trainer(plan, first, {}, std::move(world));
    EXPECT_FALSE(kept.expired());
    train(trainer);
    trainer.close();
    EXPECT_TRUE(kept.expired()) << "nothing asks them any more";
  };
  std::thread other([&] { process(1); });
  process(0);
  other.join();
}

INSTANTIATE_TEST_SUITE_P(
    Ways, NcclTrainer,
    testing::Values(
        std::pair("one_f_one_b",
                  "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\nuse 1f1b(stages=stage, "
                  "microbatches=mb)\n"),
        std::pair("zero_3",
                  "mesh(dp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=3)\n"),
        std::pair("both",
                  "mesh(pp=2, dp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\nreplicate({}, "
                  "along=dp, zero=1)\nuse zb-h1(stages=stage, microbatches=mb)\n")),
    [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace piper::python
