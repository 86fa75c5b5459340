// Trained with compiled kernels, models compute what they compute without, in the memory that was planned. Compiles for
// real, so there are few distinct chunks; all pairs of factors with PIPER_LONG=1.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "base/usual_python.h"
#include "kernels/folders.h"
#include "kernels/kernel_store.h"
#include "models/configurations.h"
#include "plan/plan.h"
#include "schedule/schedule_text.h"
#include "train_loop/covering.h"
#include "train_loop/legs.h"
#include "train_loop/tp_cases.h"

namespace piper {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

/// One for all models that are compared, one for the small model of tests of caches.
const TestFolder& cache() {
  static const TestFolder folder;
  return folder;
}
const TestFolder& small_cache() {
  static const TestFolder folder;
  return folder;
}

struct Compiling {
  std::shared_ptr<std::vector<std::string>> said = std::make_shared<std::vector<std::string>>();
  std::shared_ptr<KernelStore> kernels;

  explicit Compiling(const TestFolder& folder = cache(), const std::string& python = usual_python()) {
    KernelOptions options;
    options.cache = folder.path();
    options.compiler = {python, static_cast<int>(std::max(2u, std::thread::hardware_concurrency()))};
    options.say = [said = said](const std::string& line) { said->push_back(line); };
    kernels = std::make_shared<KernelStore>(std::move(options));
  }
};

bool can_compile() {
  static const bool can = std::system((usual_python() + " -c 'import torch._inductor' 2>/dev/null").c_str()) == 0;
  return can;
}

class CompiledChunks : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_compile()) GTEST_SKIP() << usual_python() << " has no PyTorch that can be imported";
  }
};

/// Every one of them compiles for minutes.
class LongCompiledChunks : public CompiledChunks {
 protected:
  void SetUp() override {
    if (!std::getenv("PIPER_LONG")) GTEST_SKIP() << "takes long: PIPER_LONG=1";
    CompiledChunks::SetUp();
  }
};

TrainableModel with(TrainableModel model, const Compiling& compiling) {
  model.kernels = compiling.kernels;
  return model;
}

/// Inside a region that is divided among devices temporaries may be planned too large
/// (tests/train_loop/matrix_test.cc).
void expect_memory_as_planned(const Trained& run, Issue issue, bool divided) {
  for (size_t d = 0; d < run.peak_bytes.size(); ++d) {
    EXPECT_LE(run.peak_bytes[d], run.planned_bytes[d]) << "device " << d;
    if (issue == Issue::Ahead || divided) continue;
    EXPECT_EQ(run.peak_bytes[d], run.serial_bytes[d]) << "device " << d;
  }
}

void expect_compiled(const Compiling& compiling) {
  EXPECT_GT(compiling.kernels->count().kernels, 0u);
  EXPECT_EQ(compiling.kernels->count().failed, 0u) << fmt::format("{}", fmt::join(*compiling.said, "\n"));
}

void expect_equal(const Combination& c, const Leg& leg) {
  SCOPED_TRACE(c.describe() + "\n" + c.schedule());
  const Subject subject{c.kind, c.layers(), leg.dtype, leg.optimizer};
  const Compiling compiling;
  TrainSettings settings = usual_settings(subject);
  settings.job.run.issue = leg.issue;
  const Trained run = train(with(model_of(subject), compiling), c.schedule(), settings);
  expect_compiled(compiling);
  const Difference found = compare(run, reference(subject, c.slices()));
  EXPECT_LE(found.error, leg.dtype == DType::Float64 ? 1e-12 : 1e-5) << found.where;
  expect_memory_as_planned(run, leg.issue, c.grid.experts > 1);
}

constexpr Leg in_float64{DType::Float64, Optimizer::AdamW, Issue::Serial};
constexpr Leg in_float32{DType::Float32, Optimizer::Momentum, Issue::Ahead};

Combination combination(const std::string& kind, const std::string& timeline, DeviceGrid grid) {
  Combination out;
  out.kind = kind;
  out.timeline = timeline;
  out.grid = grid;
  return out;
}

TEST_F(LongCompiledChunks, OnOneDevice) {
  expect_equal(combination("dropout", "", {1, 1, 1}), in_float64);
}

TEST_F(LongCompiledChunks, InPipelinesWithZeroAndRecomputation) {
  Combination c = combination("dropout", "1f1b", {2, 2, 1});
  c.dividing.zero = 3;
  c.recompute = true;
  expect_equal(c, in_float64);
}

TEST_F(LongCompiledChunks, WithHalvesOfBackwardAndRecomputation) {
  Combination c = combination("dropout", "zb-h1", {2, 1, 1});
  c.recompute = true;
  expect_equal(c, in_float64);
}

TEST_F(LongCompiledChunks, WithDividedExperts) {
  expect_equal(combination("mixture", "1f1b", {2, 1, 2}), in_float32);
}

TEST_F(LongCompiledChunks, WithTensorParallelism) {
  const TpCase c{"tp", "grouped", 2, 4, "mesh(tp=2)\n" + whole + everything};
  const Compiling compiling;
  const TrainableModel model = model_of(c, 2);
  const Trained run = without_key_bias(train(with(model, compiling), c.text(), settings(c)));
  expect_compiled(compiling);
  const Difference found = compare(run, without_key_bias(train(model, one_device(c), settings(c))));
  EXPECT_LE(found.error, 1e-12) << found.where;
  expect_memory_as_planned(run, Issue::Ahead, true);
}

/// Rounding to float8 is compiled too.
TEST_F(LongCompiledChunks, InFloat8) {
  const TrainableModel model = built(
      "[model]\nhidden = 32\nheads = 2\nvocab = 32\nseq = 16\nlayers = 2\narch = \"llama3\"\nkv_heads = 1\nffn = 48\n"
      "[step]\nbatch = 2\nweights = \"float64\"\ngradients = \"float64\"\noptimizer = \"adamw\"\n",
      BuildOn::Meta);
  const Compiling compiling;
  const std::string schedule = in_turn(2) + "precision({layer=*}, matmul=float8)\n";
  const TrainSettings settings = usual_settings({"dense"});
  const Trained run = train(with(model, compiling), schedule, settings);
  expect_compiled(compiling);
  const Difference found = compare(run, train(model, schedule, settings));
  EXPECT_LE(found.error, 1e-12) << found.where;
  expect_memory_as_planned(run, Issue::Ahead, false);
}

TEST_F(LongCompiledChunks, PairwiseCovering) {
  for (const Combination& c : pairwise_covering().trained)
    for (const Leg& leg : legs_of(c)) expect_equal(c, leg);
}

Trained train_small(const Compiling& compiling) {
  const Subject subject{"dense", 1};
  return train(with(model_of(subject), compiling), in_turn(8), usual_settings(subject));
}

TEST_F(CompiledChunks, AreCompiledOnce) {
  const Compiling first(small_cache()), again(small_cache(), "/no/such/python");
  const Trained trained = train_small(first);
  expect_compiled(first);
  const Difference found = compare(trained, reference({"dense", 1}, 8));
  EXPECT_LE(found.error, 1e-12) << found.where;
  EXPECT_EQ(compare(train_small(again), trained).error, 0);
  expect_compiled(again);
  EXPECT_EQ(again.kernels->count().compiled, 0u);
  EXPECT_THAT(*again.said, IsEmpty());
}

TEST_F(CompiledChunks, AreCompiledAgainWhereTheyAreDamaged) {
  const Trained trained = train_small(Compiling(small_cache()));
  const std::string entry = std::filesystem::directory_iterator(small_cache().path())->path().string();
  const std::string library = entry + "/kernel.so", bytes = text_in(library);
  std::filesystem::remove(library);  // this process has loaded it: another file takes its place
  put_text(library, bytes.substr(0, bytes.size() / 2));
  const Compiling again(small_cache());
  EXPECT_EQ(compare(train_small(again), trained).error, 0);
  expect_compiled(again);
  EXPECT_EQ(again.kernels->count().compiled, 1u);
  EXPECT_THAT(*again.said,
              testing::Contains("kernels: " + entry + " is damaged: its checksums are wrong; it is compiled again"));
  EXPECT_GT(text_in(library).size(), bytes.size() / 2);
}

TEST(RecordedOperators, RunWhereNothingCanBeCompiled) {
  const TestFolder empty;
  const Compiling compiling(empty, "/no/such/python");
  EXPECT_EQ(compare(train_small(compiling), reference({"dense", 1}, 8)).error, 0);
  EXPECT_GT(compiling.kernels->count().failed, 0u);
  EXPECT_EQ(compiling.kernels->count().failed, compiling.kernels->count().kernels);
  EXPECT_THAT(*compiling.said,
              testing::Contains(AllOf(HasSubstr("runs as recorded operators: /no/such/python"), HasSubstr("layer.0"))));
  EXPECT_TRUE(std::filesystem::is_empty(empty.path()));
}

}  // namespace
}  // namespace piper
