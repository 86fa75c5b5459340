// Negative controls: faults that a compiler or a runtime might have are caught by what the equality matrix compares,
// and located by `piper diff`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "train_loop/combination.h"
#include "train_loop/diffed.h"
#include "train_loop/wrappers.h"

namespace piper {
namespace {

struct Bed {
  Combination combination;
  Subject subject;
  const CapturedModel* model = nullptr;
  std::shared_ptr<const Plan> plan;

  explicit Bed(const Combination& c, Optimizer optimizer = Optimizer::AdamW)
      : combination(c), subject{c.kind, c.layers(), DType::Float64, optimizer} {
    model = &captured(subject, {subject_batch / c.slices()});
    auto compiled = compile_for(*model, c.schedule());
    if (!compiled) throw std::runtime_error(render(compiled.error()));
    plan = std::make_shared<const Plan>(compiled->plan);
  }
  std::vector<std::string> complaints(const std::function<void(TrainSettings&)>& plant) const {
    TrainSettings settings = usual_settings(subject);
    plant(settings);
    const Trained run = train(model_of(subject), *model, plan, settings);
    return piper::complaints(run, reference(subject, combination.slices()), 1e-12);
  }
  DiffReport difference(const std::function<void(TrainSettings&)>& plant) const {
    TrainSettings settings = usual_settings(subject);
    plant(settings);
    return diffed(model_of(subject), *model, plan, settings);
  }
  /// Right without the fault, wrong with it; and what is wrong first.
  FirstDifference expect_caught(const std::function<void(TrainSettings&)>& plant) const {
    const auto nothing = [](TrainSettings&) {};
    EXPECT_THAT(complaints(nothing), testing::IsEmpty());
    EXPECT_THAT(complaints(plant), testing::Not(testing::IsEmpty()));
    EXPECT_TRUE(difference(nothing).equal());
    const DiffReport report = difference(plant);
    EXPECT_TRUE(report.first);
    if (!report.first) return {};
    EXPECT_THAT(report.first->differed, testing::IsEmpty()) << print(report);
    return *report.first;
  }
  OpKind kind_of(const FirstDifference& first) const {
    return program_of(*plan, first.finding.device).ops[first.finding.op].kind;
  }
};

Combination combine(const std::string& kind, const std::string& timeline, DeviceGrid grid, int zero = 0) {
  Combination out;
  out.kind = kind;
  out.timeline = timeline;
  out.grid = grid;
  out.dividing = {zero, Release::Use, ""};
  return out;
}

template <class T, class... Args>
void communicate_with(TrainSettings& settings, Args... args) {
  settings.communicator = [=](std::unique_ptr<Communicator> to) { return std::make_unique<T>(std::move(to), args...); };
}

TEST(PlantedFault, MissingScale) {
  const Bed bed(combine("dense", "1f1b", {2, 1, 1}));
  const FirstDifference first =
      bed.expect_caught([](TrainSettings& settings) { settings.plant = [](Plan& plan) { plan.losses = 1; }; });
  EXPECT_EQ(first.what, "loss of the step");
  EXPECT_EQ(bed.kind_of(first), OpKind::Update);
}

TEST(PlantedFault, SwappedSlices) {
  for (const char* timeline : {"", "1f1b"}) {
    const Bed bed(combine("dense", timeline, {timeline[0] == 0 ? 1 : 2, 1, 1}));
    const FirstDifference first = bed.expect_caught([](TrainSettings& settings) {
      settings.plant = [](Plan& plan) {  // the first chunk reads the tokens of another slice
        for (PlannedOp& op : plan.templates.front().ops)
          if (op.kind == OpKind::Run && op.label.pass == Pass::F &&
              op.label.name == plan.templates.front().ops.front().label.name && op.label.slice < 2)
            op.label.slice = 1 - op.label.slice;
      };
    });
    EXPECT_EQ(first.what, "input tokens");
    EXPECT_EQ(first.chunk, "embed.0");
    EXPECT_EQ(first.pass, "F");
    EXPECT_EQ(first.finding.device, 0);
  }
}

/// Sums of gradients that everybody keeps to himself; those of the step's scalars are 16 bytes.
class SkipsReductions : public PassingCommunicator {
 public:
  using PassingCommunicator::PassingCommunicator;
  void all_reduce(int group, int64_t sequence, std::span<std::byte> data, DataType dtype, Combine how) override {
    if (data.size() <= 16) PassingCommunicator::all_reduce(group, sequence, data, dtype, how);
  }
};
TEST(PlantedFault, SkippedReduction) {
  for (const Combination& c :
       {combine("dense", "", {1, 2, 1}), combine("tied", "1f1b", {2, 1, 1}), combine("dense", "dualpipe", {2, 1, 1})}) {
    const Bed bed(c);
    const FirstDifference first =
        bed.expect_caught([](TrainSettings& settings) { communicate_with<SkipsReductions>(settings); });
    EXPECT_EQ(first.finding.what, Finding::What::Reduction) << first.what;
    EXPECT_EQ(first.finding.devices, (std::vector<int>{0, 1}));
  }
}

class CountsTwice : public PassingCommunicator {
 public:
  using PassingCommunicator::PassingCommunicator;
  void all_reduce(int group, int64_t sequence, std::span<std::byte> data, DataType dtype, Combine how) override {
    PassingCommunicator::all_reduce(group, sequence, data, dtype, how);
    if (data.size() > 16) PassingCommunicator::all_reduce(group, sequence + 1'000'000, data, dtype, how);
  }
};
TEST(PlantedFault, TiedGradientsCountedTwice) {
  const FirstDifference first = Bed(combine("tied", "1f1b", {2, 1, 1})).expect_caught([](TrainSettings& settings) {
    communicate_with<CountsTwice>(settings);
  });
  EXPECT_EQ(first.finding.what, Finding::What::Reduction) << first.what;
  EXPECT_THAT(first.chunk, testing::HasSubstr("embed"));
}

/// From the second step on, every gather brings what it brought in the first.
class GathersStale : public PassingCommunicator {
 public:
  GathersStale(std::unique_ptr<Communicator> to, int64_t per_step)
      : PassingCommunicator(std::move(to)), per_step_(per_step) {}
  void all_gather(int group, int64_t sequence, std::span<const std::byte> part, std::span<std::byte> whole,
                  int64_t run) override {
    PassingCommunicator::all_gather(group, sequence, part, whole, run);
    const std::lock_guard lock(mutex_);
    const auto [first, fresh] =
        first_.try_emplace({group, sequence % per_step_}, std::vector<std::byte>(whole.begin(), whole.end()));
    if (!fresh) std::memcpy(whole.data(), first->second.data(), whole.size());
  }

 private:
  int64_t per_step_;
  std::mutex mutex_;
  std::map<std::pair<int, int64_t>, std::vector<std::byte>> first_;
};
TEST(PlantedFault, StaleGather) {
  for (const int zero : {1, 3}) {
    const Bed bed(combine("dense", "", {1, 2, 1}, zero));
    const FirstDifference first = bed.expect_caught([&](TrainSettings& settings) {
      communicate_with<GathersStale>(settings, static_cast<int64_t>(bed.plan->communications.size()));
    });
    EXPECT_EQ(first.step, 1);
    EXPECT_EQ(first.finding.what, zero == 1 ? Finding::What::Copy : Finding::What::Weight) << first.what;
    EXPECT_EQ(bed.kind_of(first), OpKind::AllGather);
  }
}

TEST(PlantedFault, WrongExperts) {
  const FirstDifference first = Bed(combine("mixture", "", {1, 1, 2})).expect_caught([](TrainSettings& settings) {
    settings.plant = [](Plan& plan) {
      for (PlanBucket& bucket : plan.buckets)
        for (PlanHolder& holder : bucket.holders) {
          PlanPartition swapped = plan.partitions[holder.copies];
          if (swapped.part_size != 1) continue;  // of equal copies: only experts have one copy on two devices
          std::swap(swapped.members[0], swapped.members[1]);
          holder.copies = plan.partitions.add(swapped);
        }
    };
  });
  EXPECT_EQ(first.finding.what, Finding::What::Weight) << first.what;
  EXPECT_THAT(first.chunk, testing::HasSubstr("experts"));
  EXPECT_EQ(first.operation, "");  // it was so before the step
}

/// Slots of experts for the tokens of both devices together: what one device computes with slices twice as large. Where
/// that is, diff_test.cc asks.
TEST(PlantedFault, CapacityAfterTheExchange) {
  const Bed bed(combine("mixture", "", {1, 1, 2}));
  EXPECT_THAT(bed.complaints([](TrainSettings&) {}), testing::IsEmpty());
  const int64_t slices = bed.combination.slices();
  EXPECT_THAT(complaints(reference(bed.subject, slices / 2), reference(bed.subject, slices), 1e-12),
              testing::Not(testing::IsEmpty()));
}

TEST(PlantedFault, WrongRandomNumbers) {
  for (const DeviceGrid grid : {DeviceGrid{1, 2, 1}, DeviceGrid{2, 1, 1}}) {
    const Bed bed(combine("dropout", grid.ranks > 1 ? "1f1b" : "", grid));
    const FirstDifference first = bed.expect_caught([](TrainSettings& settings) {
      settings.computations = [](Computations& in) {
        return intervene(in, [](const ComputationSite&, const ComputationArguments& given, const auto& as_usual) {
          const SliceKey everywhere{given.slice.seed, 0, {}};
          as_usual({given.reads, given.parameters, given.gradients, given.writes, everywhere});
        });
      };
    });
    EXPECT_EQ(first.finding.what, Finding::What::Value) << first.what;
    EXPECT_EQ(bed.kind_of(first), OpKind::Run);
    EXPECT_EQ(first.pass, "F");
    EXPECT_GT(first.finding.first_sample, 0);  // the first slice draws what it should
  }
}

/// The operations of all programs in another order, or fewer. They run one by one, so that no wait is needed.
void rearrange(TrainSettings& settings, const std::function<void(const PlanTemplate&, std::vector<OpId>&)>& change) {
  settings.job.run.issue = Issue::Serial;
  settings.plant = [=](Plan& plan) {
    for (PlanTemplate& program : plan.templates) {
      std::vector<OpId> order;
      for (const OpId op : program.ops.ids()) order.push_back(op);
      change(program, order);
      Table<OpId, PlannedOp> ops;
      for (const OpId op : order) ops.push_back(program.ops[op]);
      for (PlannedOp& op : ops) op.waits.clear();
      program.ops = std::move(ops);
    }
  };
}
void leave_out(TrainSettings& settings, const std::function<bool(const PlannedOp&)>& these) {
  rearrange(settings, [=](const PlanTemplate& program, std::vector<OpId>& order) {
    std::erase_if(order, [&](OpId op) { return these(program.ops[op]); });
  });
}

TEST(PlantedFault, MissingUpdate) {
  for (const int zero : {0, 1, 3}) {
    const Bed bed(combine("dense", "", {1, 2, 1}, zero), Optimizer::Sgd);
    const PlanTemplate& program = bed.plan->templates.front();
    const auto last = std::find_if(program.ops.rbegin(), program.ops.rend(),
                                   [](const PlannedOp& op) { return op.kind == OpKind::Update; });
    const auto plant = [&](TrainSettings& settings) {
      leave_out(settings, [&](const PlannedOp& op) { return op.kind == OpKind::Update && op.label == last->label; });
    };
    const FirstDifference first = bed.expect_caught(plant);
    EXPECT_EQ(first.step, 0);
    EXPECT_EQ(first.what, "update of " + bed.plan->names[last->label.name]);
    EXPECT_THAT(print(bed.difference(plant)), testing::HasSubstr("none: nothing updates it"));
  }
}

/// Before the last backward.
TEST(PlantedFault, EarlyUpdate) {
  const Bed bed(combine("dense", "", {1, 1, 1}));
  const FirstDifference first = bed.expect_caught([](TrainSettings& settings) {
    rearrange(settings, [](const PlanTemplate& program, std::vector<OpId>& order) {
      const auto is = [&](OpKind kind) { return [&program, kind](OpId op) { return program.ops[op].kind == kind; }; };
      const auto update = std::ranges::find_if(order, is(OpKind::Update));
      const auto last = std::find_if(std::reverse_iterator(update), order.rend(), is(OpKind::Run)).base() - 1;
      std::rotate(last, update, update + 1);
    });
  });
  EXPECT_EQ(first.finding.what, Finding::What::Gradient) << first.what;
  EXPECT_THAT(first.operation, testing::HasSubstr(" update "));
}

TEST(PlantedFault, MissingBackward) {
  const Bed bed(combine("dense", "1f1b", {2, 1, 1}));
  const auto backward = [](const Plan& plan, const PlannedOp& op) {
    return op.kind == OpKind::Run && op.label.pass == Pass::B && plan.names[op.label.name] == "embed.0" &&
           op.label.slice == 1;
  };
  const FirstDifference first = bed.expect_caught([&](TrainSettings& settings) {
    leave_out(settings, [&](const PlannedOp& op) { return backward(*bed.plan, op); });
  });
  EXPECT_EQ(first.what, "gradient of embed.weight");
  EXPECT_EQ(first.finding.device, 0);
  EXPECT_THAT(first.operation, testing::HasSubstr(" update "));
}

/// What a computation does besides what it should.
void intervene_in(TrainSettings& settings, const std::string& chunk, Pass pass,
                  const std::function<void(const ComputationArguments&, const std::function<void()>& again)>& also) {
  settings.computations = [=](Computations& in) {
    return intervene(in, [=](const ComputationSite& site, const ComputationArguments& given, const auto& as_usual) {
      as_usual(given);
      if (site.name == chunk && site.pass == pass && given.slice.first_sample == 8)
        also(given, [&] { as_usual(given); });
    });
  };
}

TEST(PlantedFault, BackwardTwice) {
  for (const int zero : {0, 2}) {
    const Bed bed(combine("dense", "", {1, 2, 1}, zero));
    const FirstDifference first = bed.expect_caught([](TrainSettings& settings) {
      intervene_in(settings, "layer.1", Pass::B, [](const auto&, const auto& again) { again(); });
    });
    EXPECT_EQ(first.finding.what, Finding::What::Contribution) << first.what;
    EXPECT_EQ(first.chunk, "layer.1");
    EXPECT_EQ(first.pass, "B");
    EXPECT_EQ(first.finding.first_sample, 8);
  }
}

TEST(PlantedFault, WrongRecomputation) {
  Combination c = combine("dense", "1f1b", {2, 1, 1});
  c.recompute = true;
  const FirstDifference first = Bed(c).expect_caught([](TrainSettings& settings) {
    intervene_in(settings, "layer.1", Pass::R,
                 [](const auto& given, const auto&) { given.writes.front().mul_(1.001); });
  });
  EXPECT_EQ(first.finding.what, Finding::What::Value) << first.what;
  EXPECT_EQ(first.chunk, "layer.1");
  EXPECT_EQ(first.pass, "R");
}

/// The last that reads it in a step, so that nothing but its update can show it.
TEST(PlantedFault, ComputationThatChangesAWeight) {
  const Bed bed(combine("dense", "", {1, 1, 1}));
  const int64_t last = subject_batch - subject_batch / bed.combination.slices();
  const FirstDifference first = bed.expect_caught([=](TrainSettings& settings) {
    settings.computations = [=](Computations& in) {
      return intervene(in, [=](const ComputationSite& site, const ComputationArguments& given, const auto& as_usual) {
        as_usual(given);
        if (site.name == "layer.0" && site.pass == Pass::B && given.slice.first_sample == last)
          given.parameters.front().mul_(1.001);
      });
    };
  });
  EXPECT_EQ(first.finding.what, Finding::What::Update) << first.what;
  EXPECT_EQ(bed.kind_of(first), OpKind::Update);
}

/// Memory of what one slice saves for backward is somebody else's before that has run: here, when the next slice comes.
TEST(PlantedFault, MemoryUsedAfterItsEnd) {
  const Bed bed(combine("dense", "gpipe", {2, 1, 1}));
  const FirstDifference first = bed.expect_caught([](TrainSettings& settings) {
    auto freed = std::make_shared<at::Tensor>();  // by one thread
    settings.computations = [=](Computations& in) {
      return intervene(in, [=](const ComputationSite& site, const ComputationArguments& given, const auto& as_usual) {
        as_usual(given);
        if (site.name != "layer.0" || site.pass != Pass::F) return;
        if (given.slice.first_sample == 0) *freed = given.writes.front();
        if (given.slice.first_sample > 0 && freed->defined()) {
          freed->fill_(7);
          freed->reset();
        }
      });
    };
  });
  EXPECT_EQ(first.finding.what, Finding::What::Memory) << first.what;
  EXPECT_EQ(first.step, 0);
  EXPECT_EQ(first.chunk, "layer.0");
  EXPECT_EQ(first.pass, "B");
  EXPECT_EQ(first.microbatch, "mb=0");
  EXPECT_THAT(first.written_by, testing::HasSubstr("run layer.0 F mb=0"));
}

/// Every message of a size brings what the first of that size has brought.
class RepeatsTransfers : public PassingCommunicator {
 public:
  using PassingCommunicator::PassingCommunicator;
  void receive(int from, int64_t sequence, std::span<std::byte> data) override {
    PassingCommunicator::receive(from, sequence, data);
    const std::lock_guard lock(mutex_);
    const auto [first, fresh] = first_.try_emplace(data.size(), data.begin(), data.end());
    if (!fresh) std::memcpy(data.data(), first->second.data(), data.size());
  }

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<std::byte>> first_;
};
TEST(PlantedFault, TransferOfAnotherMicrobatch) {
  const Bed bed(combine("dense", "gpipe", {2, 1, 1}));
  const FirstDifference first =
      bed.expect_caught([](TrainSettings& settings) { communicate_with<RepeatsTransfers>(settings); });
  EXPECT_EQ(first.finding.what, Finding::What::Value) << first.what;
  EXPECT_EQ(bed.kind_of(first), OpKind::Recv);
  EXPECT_EQ(first.microbatch, "mb=1");
}

/// Replicas of a pipeline get each other's samples.
class OtherReplica : public PassingCommunicator {
 public:
  using PassingCommunicator::PassingCommunicator;
  void connect(int from, int to) override {
    for (const int other : {to, to ^ 1}) PassingCommunicator::connect(from, other);
  }
  void send(int to, int64_t sequence, std::span<const std::byte> data) override {
    PassingCommunicator::send(to ^ 1, sequence, data);
  }
  void receive(int from, int64_t sequence, std::span<std::byte> data) override {
    PassingCommunicator::receive(from ^ 1, sequence, data);
  }
};
TEST(PlantedFault, TransferToTheWrongReplica) {
  const Bed bed(combine("dense", "1f1b", {2, 2, 1}));
  const FirstDifference first =
      bed.expect_caught([](TrainSettings& settings) { communicate_with<OtherReplica>(settings); });
  EXPECT_EQ(first.finding.what, Finding::What::Value) << first.what;
  EXPECT_EQ(bed.kind_of(first), OpKind::Recv);
}

/// Of one slice among several, or of gathered weights.
TEST(PlantedFault, EveryCollectiveOfZero) {
  for (const int zero : {0, 1, 2, 3}) {
    const Bed bed(combine("dense", "", {1, 2, 1}, zero));
    const PlanTemplate& program = bed.plan->templates.front();
    std::set<CommunicationId> collectives;
    for (const PlannedOp& op : program.ops)
      for (const BufferId buffer : op.writes)
        if (const Category of = program.buffers[buffer].category;
            op.communication.valid() && (of == Category::Weights || of == Category::Gradients))
          collectives.insert(op.communication);
    EXPECT_FALSE(collectives.empty());
    for (const CommunicationId communication : collectives) {
      const DiffReport report = bed.difference([&](TrainSettings& settings) {
        settings.steps = 1;
        communicate_with<LeavesOut>(settings, communication.value);
      });
      ASSERT_TRUE(report.first) << bed.plan->names[bed.plan->communications[communication].label.name];
      ASSERT_TRUE(report.first->finding.op.valid()) << print(report);
      const PlannedOp& found = program_of(*bed.plan, report.first->finding.device).ops[report.first->finding.op];
      EXPECT_EQ(found.communication, communication) << print(report);
    }
  }
}

/// Sums of experts with those of the experts beside them, in the place of their copies on other replicas.
TEST(PlantedFault, ReductionOverOtherExperts) {
  const Bed bed(combine("mixture", "", {1, 2, 2}));
  const FirstDifference first = bed.expect_caught([](TrainSettings& settings) {
    settings.plant = [](Plan& plan) {
      for (const PlanTemplate& program : plan.templates)
        for (const PlannedOp& op : program.ops) {
          if (op.kind != OpKind::AllReduce || program.buffers[op.writes[0]].category != Category::Gradients) continue;
          PlanPartition over = plan.partitions[plan.communications[op.communication].over];
          if (over.part_size != 2) continue;
          std::ranges::sort(over.members);
          plan.communications[op.communication].over = plan.partitions.add(over);
        }
    };
  });
  EXPECT_EQ(first.finding.what, Finding::What::Gradient) << first.what;
  EXPECT_THAT(first.chunk, testing::HasSubstr("experts"));
}

}  // namespace
}  // namespace piper
