// What devices held comes back, whoever is lost: processes are threads here, each with connections of its own.
#include "train/loop/protect/state_keeper.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "base/hash.h"
#include "comm/processes/process_world.h"
#include "comm/tcp/tcp_transport.h"
#include "must.h"
#include "plan/lasting_state.h"
#include "train/golden_text.h"
#include "train/loop/protect/copy_holders.h"
#include "train_checkpoint/checkpointed.h"
#include "train_loop/apparatus.h"
#include "train_loop/subjects.h"

namespace piper {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int processes = 4;

using Bits = std::map<int, uint64_t>;  // by device: hash of all that outlives a step

Bits bits_of(TrainingRun& run) {
  Bits out;
  for (DeviceRun* device : run.job().devices()) {
    StableHash hash;
    for (const BufferId buffer : lasting_state(device->program())) {
      const at::Tensor flat = device->frame()[buffer];
      hash.add(std::string_view(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()));
    }
    out[device->device()] = hash.value();
  }
  return out;
}

StatePosition position_of(const TrainingRun& run) {
  return {.step = run.steps(), .samples = run.samples(), .updates = run.updates(), .plan = hash(run.plan())};
}

/// Memory of its own, as of another process.
RecentStates copy_of(const RecentStates& states) {
  RecentStates out = states;
  for (StateVersion& version : out.versions) {
    if (version.own.bytes.defined()) version.own.bytes = version.own.bytes.clone();
    for (HeldState& held : version.of_others) held.bytes = held.bytes.clone();
  }
  return out;
}

/// A job of four processes, and what each has in memory of its last steps.
class KeptJob {
 public:
  using States = std::array<RecentStates, processes>;

  std::vector<std::string> hosts = std::vector<std::string>(processes, "here");  // by rank; of what follows

  explicit KeptJob(const std::string& schedule) : part_(part(schedule)) {}

  /// Its first steps. `leaves`: a process that is lost when all have taken the last of them, and only it has not kept
  /// what it holds.
  States train(int64_t steps, int leaves = -1) {
    States states;
    in_processes([&](int rank, World& world) {
      const std::unique_ptr<TrainingRun> run = begin(model_of(subject_), part_, settings_, &world);
      StateKeeper keeper(*run, states[static_cast<size_t>(rank)], hosts);
      EXPECT_FALSE(must(keeper.restore()).has_value()) << "nobody has anything";
      keeper.keep(position_of(*run));
      note(*run);
      for (int64_t step = 0; step < steps; ++step) {
        must(run->step(step_settings(model_of(subject_), settings_, step)));
        note(*run);
        const bool ends = leaves >= 0 && step + 1 == steps;
        if (ends) run->greatest(0);  // all have taken it
        if (ends && rank == leaves) return world.leave();
        try {
          keeper.keep(position_of(*run));
        } catch (const std::exception&) {  // as soon as the loss is noticed
          EXPECT_TRUE(ends);
        }
      }
    });
    return states;
  }

  /// What all of them say: the step after which they go on, having what they held then; or why not.
  std::string restore(States& states) {
    int64_t done = 0;
    for (const RecentStates& of : states) done = std::max(done, of.done);
    std::array<std::string, processes> said;
    in_processes([&](int rank, World& world) {
      const auto process = static_cast<size_t>(rank);
      states[process].done = done;  // as the rendezvous says
      const std::unique_ptr<TrainingRun> run = begin(model_of(subject_), part_, settings_, &world);
      StateKeeper keeper(*run, states[process], hosts);
      const Result<std::optional<StatePosition>> found = keeper.restore();
      if (!found) {
        said[process] = render(found.error());
      } else if (!*found) {
        said[process] = "begins";
      } else {
        said[process] = fmt::format("{}", (*found)->step);
        EXPECT_EQ(bits_of(*run), held_after(rank, (*found)->step)) << "process " << rank;
      }
    });
    for (const std::string& one : said) EXPECT_EQ(one, said[0]) << "all of them know the same";
    return said[0];
  }

  std::string restore_without(const States& states, const std::vector<int>& lost) {
    States left;
    for (int rank = 0; rank < processes; ++rank)
      if (std::ranges::find(lost, rank) == lost.end())
        left[static_cast<size_t>(rank)] = copy_of(states[static_cast<size_t>(rank)]);
    return restore(left);
  }

 private:
  RunPart part(const std::string& schedule) const {
    const CapturedModel& model = captured(subject_, {1, 2});
    return {&model, std::make_shared<const Plan>(must(compile_for(model, schedule)).plan), 0};
  }

  void note(TrainingRun& run) {
    const Bits bits = bits_of(run);
    const std::lock_guard lock(mutex_);
    after_[run.steps()].insert(bits.begin(), bits.end());
  }
  Bits held_after(int rank, int64_t step) {
    const std::lock_guard lock(mutex_);
    return {{rank, after_.at(step).at(rank)}};
  }

  void in_processes(const std::function<void(int rank, World& world)>& act) {
    std::vector<TcpDoor> doors;
    std::vector<std::string> addresses;
    for (int rank = 0; rank < processes; ++rank) addresses.push_back(doors.emplace_back("127.0.0.1").address());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < processes; ++rank)
      threads.emplace_back([&, rank] {
        ProcessWorld world([&] {
          return make_tcp_transport(rank, doors[static_cast<size_t>(rank)], addresses, std::chrono::minutes(5));
        });
        act(rank, world);
      });
    for (std::thread& thread : threads) thread.join();
  }

  const Subject subject_{.kind = "dense"};
  const TrainSettings settings_ = usual_settings(subject_);
  const RunPart part_;
  std::mutex mutex_;
  std::map<int64_t, Bits> after_;  // by step
};

/// Each device has parameters that no other has.
constexpr char pipeline[] =
    "mesh(pp=4)\nsplit(batch, parts=8, as=mb)\nplace({}, along=pp, stages=4)\nuse 1f1b(stages=stage, "
    "microbatches=mb)\n";
/// Only the devices in the middle hold the same.
constexpr char two_in_the_middle[] =
    "devices(4)\nsplit(batch, parts=8, as=mb)\nplace({embed=*}, devices=[0], stage=0)\n"
    "place({layer=*}, devices=[1, 2], stage=1)\nplace({head=*}, devices=[3], stage=2)\n"
    "replicate({layer=*}, devices=[1, 2])\nuse 1f1b(stages=stage, microbatches=mb)\n";

std::string replicas_with(int zero) {
  return fmt::format(
      "mesh(dp=4)\nsplit(batch, parts=2, as=mb)\nplace({{}}, mesh={{}})\nreplicate({{}}, along=dp, zero={})\n", zero);
}

TEST(StateKeeper, WhateverOneProcessHeldComesBack) {
  for (const std::string& schedule : {std::string(pipeline), replicas_with(0), replicas_with(1), replicas_with(3)}) {
    SCOPED_TRACE(schedule);
    KeptJob job(schedule);
    const KeptJob::States states = job.train(3);
    for (int lost = 0; lost < processes; ++lost) EXPECT_EQ(job.restore_without(states, {lost}), "3");
  }
}

TEST(StateKeeper, SoDoesWhatTwoHeldThatAreNoNeighbours) {
  KeptJob job(pipeline);
  const KeptJob::States states = job.train(2);
  EXPECT_EQ(job.restore_without(states, {0, 2}), "2");
  EXPECT_EQ(job.restore_without(states, {1, 3}), "2");
}

TEST(StateKeeper, WholeReplicasNeedNoCopies) {
  KeptJob job(replicas_with(0));
  EXPECT_EQ(job.restore_without(job.train(2), {0, 1, 2}), "2");
}

/// The owner and the holder of its copy.
TEST(StateKeeper, LostNeighboursAreTheEnd) {
  KeptJob job(pipeline);
  const KeptJob::States states = job.train(3);
  expect_golden("E805_lost", job.restore_without(states, {2, 3}));
  EXPECT_THAT(job.restore_without(states, {0, 3}), HasSubstr("what device 3 held after step 3 is lost"));
  KeptJob divided(replicas_with(1));
  EXPECT_THAT(divided.restore_without(divided.train(1), {0, 1}), HasSubstr("what device 0 held after step 1 is lost"));
}

/// Those that are left have come later, and know from the rendezvous that steps were done.
TEST(StateKeeper, ARunThatHasLostEverythingDoesNotBeginAnew) {
  KeptJob job(pipeline);
  KeptJob::States nothing;
  nothing[1].done = job.train(2)[0].done;
  EXPECT_THAT(job.restore(nothing), HasSubstr("what devices [0..3] held after 2 updates is lost"));
}

TEST(StateKeeper, ARunThatHasDoneNothingBegins) {
  KeptJob job(pipeline);
  const KeptJob::States states = job.train(0);
  EXPECT_EQ(job.restore_without(states, {1}), "0");
  EXPECT_EQ(job.restore_without(states, {1, 2}), "begins");
}

/// A process is lost after all have taken a step, and before it has sent what it holds.
TEST(StateKeeper, WithoutTheLastCopyTheStepBeforeIsTaken) {
  KeptJob job(pipeline);
  for (int lost = 0; lost < processes; ++lost) EXPECT_EQ(job.restore_without(job.train(3, lost), {lost}), "2");
}

/// A process has what a neighbour held two steps ago, and gets from its replica what it held itself after the last.
TEST(StateKeeper, AnOldCopyIsNotTakenForANewOne) {
  KeptJob job(two_in_the_middle);
  KeptJob::States states = job.train(3, 1);
  EXPECT_EQ(job.restore(states), "3") << "nobody is lost";
  EXPECT_EQ(job.restore_without(states, {0}), "2");
}

/// Copies are on another host: all processes of one may be lost at once.
TEST(StateKeeper, AHostMayBeLost) {
  for (const std::string& schedule : {std::string(pipeline), replicas_with(1)}) {
    KeptJob job(schedule);
    job.hosts = {"a", "a", "b", "b"};
    const KeptJob::States states = job.train(2);
    EXPECT_EQ(job.restore_without(states, {0, 1}), "2");
    EXPECT_EQ(job.restore_without(states, {2, 3}), "2");
  }
}

/// The spare is on another host, so copies go elsewhere: what came before is still known by whose it is.
TEST(StateKeeper, ACopyIsKnownByWhoseItIs) {
  KeptJob job(pipeline);
  job.hosts = {"a", "a", "b", "b"};  // copies are two ranks on
  KeptJob::States states = job.train(2);
  job.hosts = {"a", "c", "b", "d"};  // one rank on
  EXPECT_EQ(job.restore_without(states, {0}), "2");
  EXPECT_EQ(job.restore_without(states, {1}), "2");
}

TEST(CopyHolders, AreNotLostWithTheOwner) {
  const std::vector<int> apart = lost_together({"a", "a", "a"}), two = lost_together({"a", "a", "b", "b"}),
                         uneven = lost_together({"a", "b", "b", "b"});
  EXPECT_THAT(apart, ElementsAre(0, 1, 2));
  EXPECT_THAT(two, ElementsAre(0, 0, 2, 2));
  EXPECT_EQ(distance_of_copies(apart, 1), 1);
  EXPECT_EQ(distance_of_copies(two, 1), 2);
  EXPECT_EQ(distance_of_copies(uneven, 1), 1);
  EXPECT_EQ(distance_of_copies(lost_together({"a", "b", "a", "b"}), 1), 1);
  EXPECT_EQ(distance_of_copies(lost_together({"a"}), 1), 0);
  EXPECT_EQ(distance_of_copies(apart, 2), 1);
  EXPECT_EQ(distance_of_copies(apart, 3), 0) << "a process has no copy of its own";
  EXPECT_EQ(distance_of_copies(two, 2), 1) << "two ranks on, the second copy would come back to its owner";
}

}  // namespace
}  // namespace piper
