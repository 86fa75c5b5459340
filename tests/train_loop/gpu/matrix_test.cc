// The equality matrix on a GPU: all devices share one, and compute what one device there computes that runs all slices
// in turn.
#include <ATen/cuda/CUDAContextLight.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "runtime/gpu/gpu_processor.h"
#include "train_loop/covering.h"
#include "train_loop/legs.h"

namespace piper {
namespace {

std::unique_ptr<Processor> find(const GpuOptions& options) {
  auto made = make_gpu_processor(options);
  return made ? std::move(*made) : nullptr;
}
/// Operators give the same bits in every run; memory is libtorch's. None: there is no GPU.
Processor* gpu() {
  static const std::unique_ptr<Processor> found = find({.deterministic = true, .arenas = false});
  return found.get();
}
/// The same, where memory has its places from the third step on, and chunks, or segments of them, may be graphs.
Processor* gpu_with(Graphs graphs) {
  static const std::unique_ptr<Processor> arenas = find({.deterministic = true}),
                                          chunks = find({.deterministic = true, .graphs = Graphs::Chunk}),
                                          steps = find({.deterministic = true, .graphs = Graphs::Step});
  return (graphs == Graphs::None ? arenas : graphs == Graphs::Chunk ? chunks : steps).get();
}
std::string name(Graphs graphs) {
  return graphs == Graphs::None ? "none" : graphs == Graphs::Chunk ? "chunk" : "step";
}
constexpr std::array all_graphs = {Graphs::None, Graphs::Chunk, Graphs::Step};

Trained trained(const Combination& c, const Leg& leg, bool poison_freed, Processor* on = gpu(), int64_t steps = 0) {
  const Subject subject{
      .kind = c.kind, .layers = c.layers(), .dtype = leg.dtype, .optimizer = leg.optimizer, .on = gpu()};
  const std::vector<int64_t> samples = {subject_batch / c.slices()};
  const CapturedModel& model = captured(subject, samples);
  Result<Compiled> compiled = compile_for(model, c.schedule());
  if (!compiled) throw std::runtime_error(render(compiled.error()));
  TrainSettings settings = usual_settings(subject);
  if (steps > 0) settings.steps = steps;
  settings.job.run.processor = on;
  settings.job.run.issue = leg.issue;
  settings.job.run.poison_freed = poison_freed;
  return train(model_of(subject), model, std::make_shared<const Plan>(compiled->plan), settings);
}

class GpuMatrix : public testing::TestWithParam<size_t> {};

TEST_P(GpuMatrix, EqualsOneDevice) {
  if (!gpu()) GTEST_SKIP() << "there is no GPU here";
  const Combination& c = pairwise_covering().trained[GetParam()];
  SCOPED_TRACE(c.describe() + "\n" + c.schedule());
  for (Leg leg : legs_of(c)) {
    const Subject subject{
        .kind = c.kind, .layers = c.layers(), .dtype = leg.dtype, .optimizer = leg.optimizer, .on = gpu()};
    const Trained& expected = reference(subject, c.slices());
    const Trained run = trained(c, leg, false);
    EXPECT_THAT(complaints(run, expected, leg.dtype == DType::Float64 ? 1e-12 : 1e-5), testing::IsEmpty());
    EXPECT_EQ(run.devices, c.grid.devices());
    // again, the other way round and in arenas: what depends on when something runs, or where, would give other bits
    leg.issue = leg.issue == Issue::Ahead ? Issue::Serial : Issue::Ahead;
    const Trained again = trained(c, leg, true, gpu_with(Graphs::None));
    EXPECT_EQ(again.losses, run.losses);
    EXPECT_EQ(again.norms, run.norms);
    EXPECT_EQ(again.bits, run.bits);
  }
}
INSTANTIATE_TEST_SUITE_P(Pairwise, GpuMatrix, testing::Range(size_t{0}, pairwise_covering().trained.size()),
                         [](const auto& info) { return fmt::format("{:03}", info.param); });

/// Memory with fixed places, and graphs, change no bit.
TEST_P(GpuMatrix, GraphsGiveTheSameBits) {
  if (!gpu()) GTEST_SKIP() << "there is no GPU here";
  const Combination& c = pairwise_covering().trained[GetParam()];
  SCOPED_TRACE(c.describe() + "\n" + c.schedule());
  const Leg leg = legs_of(c)[0];
  const Trained plain = trained(c, leg, false, gpu(), 5);
  for (const Graphs graphs : all_graphs) {
    SCOPED_TRACE(name(graphs));
    const GpuCounts before = gpu_counts();
    const Trained run = trained(c, leg, true, gpu_with(graphs), 5);
    EXPECT_EQ(gpu_counts().graphs > before.graphs, graphs != Graphs::None);
    EXPECT_EQ(gpu_counts().unrecorded, before.unrecorded);
    EXPECT_EQ(gpu_counts().arena_misses, before.arena_misses);
    EXPECT_EQ(run.losses, plain.losses);
    EXPECT_EQ(run.norms, plain.norms);
    EXPECT_EQ(run.bits, plain.bits);
  }
}

/// In bfloat16 attention and products are other operators than in wider types.
TEST(Gpu, GraphsGiveTheSameBitsInBFloat16) {
  if (!gpu()) GTEST_SKIP() << "there is no GPU here";
  for (const std::string& kind : subject_kinds()) {
    SCOPED_TRACE(kind);
    const Subject subject{kind, 4, DType::BFloat16, Optimizer::AdamW, subject_batch, DType::Float32, gpu()};
    const CapturedModel& model = captured(subject, {subject_batch / 4});
    Result<Compiled> compiled = compile_for(model, in_turn(4));
    ASSERT_TRUE(compiled) << render(compiled.error());
    const auto plan = std::make_shared<const Plan>(compiled->plan);
    const auto bits = [&](Processor* on) {
      TrainSettings settings = usual_settings(subject);
      settings.steps = 5;
      settings.job.run.processor = on;
      return train(model_of(subject), model, plan, settings).bits;
    };
    const auto plain = bits(gpu());
    for (const Graphs graphs : all_graphs) EXPECT_EQ(bits(gpu_with(graphs)), plain) << name(graphs);
  }
}

/// Otherwise a process that trains often would run out of memory.
TEST(Gpu, WorkspacesOfProductsEndWithTheRun) {
  if (!gpu()) GTEST_SKIP() << "there is no GPU here";
  const Subject subject{.kind = "dense", .on = gpu()};
  const CapturedModel& model = captured(subject, {subject_batch / 4});
  Result<Compiled> compiled =
      compile_for(model, "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\n");
  ASSERT_TRUE(compiled) << render(compiled.error());
  TrainSettings settings = usual_settings(subject);
  settings.steps = 5;
  const auto held = [] { return at::cuda::cublas_handle_stream_to_workspace().map.size(); };
  const size_t before = held();
  for (const Graphs graphs : all_graphs) {
    settings.job.run.processor = gpu_with(graphs);
    train(model_of(subject), model, std::make_shared<const Plan>(compiled->plan), settings);
    EXPECT_EQ(held(), before) << name(graphs);
  }
}

/// Without random numbers, which differ, a GPU computes what a processor does.
TEST(Gpu, EqualsTheProcessor) {
  if (!gpu()) GTEST_SKIP() << "there is no GPU here";
  for (const std::string kind : {"dense", "tied", "mixture"}) {
    SCOPED_TRACE(kind);
    const Subject there{.kind = kind, .on = gpu()}, here{.kind = kind};
    EXPECT_THAT(complaints(reference(there, 4), reference(here, 4), 1e-10),
                testing::Each(testing::StartsWith("not in order")));  // other kernels add up in another order
  }
}

}  // namespace
}  // namespace piper
