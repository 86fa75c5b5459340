// Whatever the schedule: the loss, the gradients, the moments and the weights of one device that runs all slices in
// turn.
#include <gtest/gtest.h>

#include "train_loop/trained.h"

namespace piper {
namespace {

const std::string dense = R"(
[model]
arch = "reference"
layers = 4
hidden = 16
heads = 2
vocab = 64
seq = 8
[step]
batch = 8
weights = "float64"
gradients = "float64"
)";
const std::string mixture = R"(
[model]
arch = "reference-moe"
layers = 4
hidden = 16
heads = 2
vocab = 64
seq = 8
experts = 4
[step]
batch = 8
weights = "float64"
gradients = "float64"
)";

TrainableModel built(const std::string& config) {
  auto model = build_model(make_source("model.toml", config), 1);
  if (!model) throw std::runtime_error(render(model.error()));
  return *std::move(model);
}

void expect_equal(const std::string& config, const std::string& schedule, int64_t slices) {
  const TrainableModel model = built(config);
  TrainSettings settings;
  const Trained reference = train(model, in_turn(slices), settings), run = train(model, schedule, settings);
  const Difference worst = compare(run, reference);
  EXPECT_LE(worst.error, 1e-12) << worst.where;
  EXPECT_TRUE(wrongly_ordered(run, reference).empty());
  EXPECT_TRUE(run.copies_equal);
  settings.job.run.issue = Issue::Serial;
  const Trained serial = train(model, schedule, settings);
  EXPECT_EQ(compare(serial, run).error, 0) << compare(serial, run).where;
  EXPECT_EQ(serial.peak_bytes, serial.serial_bytes);
}

TEST(Equality, OneDevice) {
  expect_equal(dense, in_turn(4), 4);
}
TEST(Equality, DataParallel) {
  for (const char* zero : {"0", "1", "2", "3"})
    expect_equal(
        dense,
        std::string("mesh(dp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=") +
            zero + ", bucket=8KB)\n",
        4);
}
TEST(Equality, OneForwardOneBackward) {
  expect_equal(dense,
               "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\nuse 1f1b(stages=stage, "
               "microbatches=mb)\n",
               4);
}
TEST(Equality, Experts) {
  for (const char* zero : {"0", "1", "2", "3"})
    expect_equal(
        mixture,
        std::string("mesh(dp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, mesh={})\nreplicate({}, along=dp, zero=") +
            zero + ")\nshard({experts=*}, along=dp)\n",
        4);
}

}  // namespace
}  // namespace piper
