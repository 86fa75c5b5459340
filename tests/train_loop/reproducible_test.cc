// Runs are equal bit by bit, however long anything takes; and what would see it if they were not.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "plan/verify_plan.h"
#include "runtime/stream/failure.h"
#include "train_loop/combination.h"
#include "train_loop/wrappers.h"

namespace piper {
namespace {

using namespace std::chrono_literals;

/// Experts, replicas, sharded weights and overlapped pairs on four devices: six streams on each.
Combination many_streams() {
  Combination out;
  out.kind = "mixture_dropout";
  out.timeline = "dualpipev";
  out.grid = {2, 1, 2};
  out.dividing = {3, Release::Use, ""};
  out.small_buckets = true;
  return out;
}

struct DelayedBed {
  Subject subject;
  const CapturedModel* model = nullptr;
  std::shared_ptr<const Plan> plan;

  explicit DelayedBed(const Combination& c) : subject{c.kind, c.layers(), DType::Float32} {
    model = &captured(subject, {subject_batch / c.slices()});
    auto compiled = compile_for(*model, c.schedule());
    if (!compiled) throw std::runtime_error(render(compiled.error()));
    plan = std::make_shared<const Plan>(compiled->plan);
  }
  TrainSettings settings() const { return usual_settings(subject); }
  Trained run(const TrainSettings& settings) const { return train(model_of(subject), *model, plan, settings); }
};

/// Every operation starts up to so much later; every run otherwise.
std::function<void(int, OpId)> random_delays(unsigned seed, std::chrono::microseconds longest) {
  return [=](int device, OpId op) {
    std::seed_seq mix{seed, static_cast<unsigned>(device), static_cast<unsigned>(op.value)};
    std::minstd_rand random(mix);
    if (random() % 4 == 0) std::this_thread::sleep_for(longest * (random() % 1000) / 1000);
  };
}

void expect_same_bits(const Trained& run, const Trained& first) {
  ASSERT_EQ(run.losses, first.losses);
  for (const auto& [ours, theirs] : {std::pair{&run.weights, &first.weights}, std::pair{&run.moment1, &first.moment1},
                                     std::pair{&run.gradients.back(), &first.gradients.back()}})
    for (const auto& [name, tensor] : *theirs) ASSERT_TRUE(at::equal(ours->at(name), tensor)) << name;
}

TEST(ThoroughReproducible, FiftyRunsWithRandomDelays) {
  const DelayedBed bed(many_streams());
  const Trained first = bed.run(bed.settings());
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    TrainSettings settings = bed.settings();
    settings.job.run.before_op = random_delays(seed, 300us);
    expect_same_bits(bed.run(settings), first);
    if (HasFatalFailure()) return;
  }
}

TEST(Reproducible, FreedBuffersFilledWithNaN) {
  const DelayedBed bed(many_streams());
  const Trained first = bed.run(bed.settings());
  for (const Issue issue : {Issue::Ahead, Issue::Serial}) {
    TrainSettings settings = bed.settings();
    settings.job.run.poison_freed = true;
    settings.job.run.issue = issue;
    expect_same_bits(bed.run(settings), first);
  }
}

/// Which of the three sees a fault.
struct Seen {
  bool verifier = false, delays = false, fill = false;
  friend bool operator==(const Seen&, const Seen&) = default;
};
void PrintTo(const Seen& seen, std::ostream* out) {
  *out << (seen.verifier ? "verifier " : "") << (seen.delays ? "delays " : "") << (seen.fill ? "NaN" : "");
}

bool differs(const DelayedBed& bed, const TrainSettings& settings, const Trained& right) {
  try {
    const Trained run = bed.run(settings);
    return run.losses != right.losses || !run.copies_equal || compare(run, right).error != 0;
  } catch (const RunError&) {
    return true;
  }
}

/// Delays where they hurt: all operations of a stream come late.
std::function<void(int, OpId)> late_stream(const Plan& plan, const std::string& stream) {
  return [&plan, stream](int device, OpId op) {
    const PlannedOp& late = program_of(plan, device).ops[op];
    if (plan.streams[late.stream] == stream) std::this_thread::sleep_for(2ms);
  };
}

Seen seen(const DelayedBed& bed, const std::function<void(TrainSettings&)>& plant, const std::string& late) {
  const Trained right = bed.run(bed.settings());
  TrainSettings faulty = bed.settings();
  plant(faulty);
  Seen out;
  if (faulty.plant) {
    Plan plan = *bed.plan;
    faulty.plant(plan);
    out.verifier = !verify(plan);
  }
  TrainSettings delayed = faulty, filled = faulty;
  delayed.job.run.before_op = late_stream(*bed.plan, late);
  filled.job.run.poison_freed = true;
  filled.job.run.issue = Issue::Serial;  // so that nothing but the fill can be seen
  out.delays = differs(bed, delayed, right);
  out.fill = differs(bed, filled, right);
  return out;
}

DelayedBed replicas() {
  Combination c;
  c.kind = "dense";
  c.grid = {1, 2, 1};
  return DelayedBed(c);
}
DelayedBed pipelined_bed() {
  Combination c;
  c.kind = "dense";
  c.timeline = "1f1b";
  c.grid = {2, 1, 1};
  return DelayedBed(c);
}

/// Updates no longer wait for the reduction of what they use.
void drop_waits_of_updates(Plan& plan) {
  for (PlanTemplate& t : plan.templates)
    for (PlannedOp& op : t.ops)
      if (op.kind == OpKind::Update) std::erase_if(op.waits, [&](OpId w) { return t.ops[w].kind != OpKind::Run; });
}
/// Nor do computations wait for what they receive.
void drop_waits_for_receives(Plan& plan) {
  for (PlanTemplate& t : plan.templates)
    for (PlannedOp& op : t.ops) std::erase_if(op.waits, [&](OpId w) { return t.ops[w].kind == OpKind::Recv; });
}
TEST(Reproducible, MissingWaitIsSeen) {
  EXPECT_EQ(seen(
                replicas(), [](TrainSettings& s) { s.plant = drop_waits_of_updates; }, "dp"),
            (Seen{true, true, false}));
  EXPECT_EQ(seen(
                pipelined_bed(), [](TrainSettings& s) { s.plant = drop_waits_for_receives; }, "p2p.recv"),
            (Seen{true, true, false}));
}

/// The plan frees activations where they are written. Buffers stay until their last use all the same, so that only the
/// verifier sees it: the memory that others count on is not there.
void free_at_once(Plan& plan) {
  for (PlanTemplate& t : plan.templates)
    for (const BufferId b : t.buffers.ids()) {
      if (t.buffers[b].category != Category::Activations) continue;
      PlannedOp* first = nullptr;
      for (PlannedOp& op : t.ops)
        if (std::find(op.writes.begin(), op.writes.end(), b) != op.writes.end() && !first) first = &op;
      if (!first) continue;
      for (PlannedOp& op : t.ops) std::erase(op.frees, b);
      first->frees.push_back(b);
    }
}
TEST(Reproducible, PrematureFreeInThePlanIsSeen) {
  EXPECT_EQ(seen(
                pipelined_bed(), [](TrainSettings& s) { s.plant = free_at_once; }, "compute"),
            (Seen{true, false, false}));
}

/// A computation hands on memory that it was only lent: its result lies in what the plan frees after it.
TEST(Reproducible, UseOfFreedMemoryIsSeen) {
  const auto lies_in_what_it_read = [](const ComputationSite& site, const ComputationArguments& given,
                                       const auto& as_usual) {
    as_usual(given);
    if (site.pass != Pass::B) return;
    for (at::Tensor& result : given.writes)
      for (const at::Tensor& read : given.reads)
        if (read.is_floating_point() && read.sizes() == result.sizes() && read.strides() == result.strides()) {
          read.copy_(result);
          result = read;
          return;
        }
  };
  EXPECT_EQ(seen(
                pipelined_bed(),
                [&](TrainSettings& s) {
                  s.computations = [&](Computations& in) { return intervene(in, lies_in_what_it_read); };
                },
                "compute"),
            (Seen{false, false, true}));
}

/// The same, but the result does not keep the memory it lies in: what sends it reads what was freed. Nothing but the
/// sanitizer can tell.
TEST(SanitizerDeathTest, UseOfFreedMemoryIsSeen) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto outlives_its_memory = [](const ComputationSite& site, const ComputationArguments& given,
                                      const auto& as_usual) {
    as_usual(given);
    if (site.pass != Pass::B) return;
    for (at::Tensor& result : given.writes) {
      at::Tensor gone = result.clone();
      result = at::from_blob(gone.data_ptr(), gone.sizes(), gone.strides(), gone.options());
    }
  };
  EXPECT_DEATH(
      {
        const DelayedBed bed = pipelined_bed();
        TrainSettings settings = bed.settings();
        settings.computations = [&](Computations& in) { return intervene(in, outlives_its_memory); };
        bed.run(settings);
      },
      "heap-use-after-free");
  return;
#endif
#endif
  GTEST_SKIP() << "only with the address sanitizer";
}

}  // namespace
}  // namespace piper
