// The equality matrix in several processes: what threads of one process compute, bit by bit. Started by mpirun; all
// processes run the same tests in the same order, and rank 0 compares.
#include <gtest/gtest.h>

#include <cstdio>

#include "comm/mpi/mpi_world.h"
#include "runtime/packed.h"
#include "train_loop/covering.h"
#include "train_loop/legs.h"

namespace piper {
namespace {

/// The processes, or none if nobody has started several.
MpiWorld* processes() {
  static const std::unique_ptr<MpiWorld> world = launched_ranks() ? std::make_unique<MpiWorld>() : nullptr;
  return world.get();
}

/// What a process knows of a training: loss and norm of every step, and everything that its devices keep.
std::string pack(const Trained& run) {
  Packing out;
  out.add(run.losses);
  out.add(run.norms);
  out.add(run.bits.size());
  for (const auto& [device, bits] : run.bits) {
    out.add(device);
    out.add(bits);
  }
  return out.take();
}
Trained unpack(const std::string& bytes) {
  Unpacking in(bytes);
  Trained out;
  in.take(out.losses);
  in.take(out.norms);
  for (size_t left = in.count(); left > 0 && in.complete(); --left) {
    int device = -1;
    in.take(device);
    in.take(out.bits[device]);
  }
  return out;
}

void expect_equal_to_threads(MpiWorld& world, const Combination& c, const Leg& leg) {
  const Subject subject{c.kind, c.layers(), leg.dtype, leg.optimizer};
  const CapturedModel& model = captured(subject, {subject_batch / c.slices()});
  Result<Compiled> compiled = compile_for(model, c.schedule());
  ASSERT_TRUE(compiled) << render(compiled.error());
  const auto plan = std::make_shared<const Plan>(compiled->plan);
  TrainSettings settings = usual_settings(subject);
  settings.job.run.issue = leg.issue;
  settings.world = &world;
  const Trained mine = train(model_of(subject), model, plan, settings);
  const auto all = world.gather(pack(mine), std::chrono::minutes(20));
  if (world.rank() != 0) return;
  settings.world = nullptr;
  const Trained threads = train(model_of(subject), model, plan, settings);
  std::map<int, uint64_t> bits;
  for (const auto& bytes : all) {
    ASSERT_TRUE(bytes) << "a process did not answer";
    const Trained theirs = unpack(*bytes);
    EXPECT_EQ(theirs.losses, threads.losses);
    EXPECT_EQ(theirs.norms, threads.norms);
    bits.insert(theirs.bits.begin(), theirs.bits.end());
  }
  EXPECT_EQ(bits, threads.bits);
}

class Processes : public testing::TestWithParam<size_t> {};

TEST_P(Processes, EqualThreads) {
  if (!processes()) GTEST_SKIP() << "needs mpirun";
  const Combination& c = pairwise_covering().trained[GetParam()];
  if (c.grid.devices() < processes()->ranks()) GTEST_SKIP() << "more processes than devices";
  SCOPED_TRACE(c.describe() + "\n" + c.schedule());
  try {
    for (const Leg& leg : legs_of(c)) expect_equal_to_threads(*processes(), c, leg);
  } catch (const std::exception& problem) {  // the others are not where this one is any more
    std::fprintf(stderr, "rank %d, combination %zu: %s\n", processes()->rank(), GetParam(), problem.what());
    processes()->end_everywhere(1);
  }
}
INSTANTIATE_TEST_SUITE_P(Pairwise, Processes, testing::Range(size_t{0}, pairwise_covering().trained.size()),
                         [](const auto& info) { return std::to_string(1000 + info.param).substr(1); });

}  // namespace
}  // namespace piper
