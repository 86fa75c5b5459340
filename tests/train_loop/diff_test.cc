// `piper diff`: silent where nothing is wrong, whatever the schedule; exact where something is.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "must.h"
#include "schedule/schedule_text.h"
#include "train/loop/diff/diff_training.h"
#include "train_loop/combination.h"
#include "train_loop/diffed.h"
#include "train_loop/tp_cases.h"
#include "train_loop/wrappers.h"

namespace piper {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

PreparedTraining prepare(const Subject& subject, const std::string& schedule) {
  return prepared(model_of(subject), schedule);
}

DiffReport diff_of(const Subject& subject, const std::string& schedule,
                   const std::function<void(TrainSettings&, const Plan&)>& plant = {},
                   const DiffOptions& options = {}) {
  const PreparedTraining training = prepare(subject, schedule);
  TrainSettings settings = usual_settings(subject);
  if (plant) plant(settings, *training.plan);
  return diffed(model_of(subject), *training.captured, training.plan, settings, options);
}

const std::string pipeline =
    "mesh(pp=2, dp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\n"
    "replicate({}, along=dp, zero=0)\nuse 1f1b(stages=stage, microbatches=mb)\n";

TEST(Diff, FindsNothingWhereNothingIsWrong) {
  std::vector<Combination> all(6);
  all[0] = {"dense", "zb-v", {2, 2, 1}, {1, Release::Use, ""}};
  all[1] = {"mixture", "dualpipev", {2, 1, 2}, {2, Release::Use, ""}};
  all[2] = {"mixture_dropout", "interleaved-1f1b", {2, 2, 1}, {3, Release::Pass, ""}, true, true};
  all[3] = {"two_branch", "", {1, 2, 1}, {3, Release::Step, ""}};
  all[4] = {"tied", "dualpipe", {2, 2, 1}, {0, Release::Use, ""}};
  all[5] = {"dropout", "1f1b", {2, 1, 1}, {0, Release::Use, ""}, false, true, Halves::Split};
  for (const Combination& c : all) {
    SCOPED_TRACE(c.describe() + "\n" + c.schedule());
    if (exclusion(c)) continue;
    const DiffReport report = diff_of({c.kind, c.layers()}, c.schedule());
    EXPECT_TRUE(report.equal()) << print(report);
    EXPECT_THAT(report.not_compared, IsEmpty()) << print(report);
    EXPECT_GT(report.compared, 500);
  }
}

/// Routers and gradients are in float32, and no more exact than the weights they are computed with.
TEST(Diff, FindsNothingInMixturesInBFloat16) {
  Combination c = {"mixture", "dualpipev", {2, 1, 2}, {2, Release::Use, ""}};
  c.recompute = true;
  const Subject narrow{c.kind, c.layers(), DType::BFloat16, Optimizer::AdamW, subject_batch, DType::Float32};
  const DiffReport report = diff_of(narrow, c.schedule());
  EXPECT_TRUE(report.equal()) << print(report);
  EXPECT_GT(report.largest, 1e-5) << "then a tolerance for float32 would do";
}

TEST(Diff, ComparesGroupsOfDifferentSize) {
  const DiffReport report =
      diff_of({"tied"},
              "devices(7)\nsplit(batch, parts=2, as=mb)\nplace({embed=*}, devices=[0, 1], stage=0)\n"
              "place({layer=0..1}, devices=[0, 1], stage=0)\nplace({layer=2}, devices=[2..5], stage=1)\n"
              "place({layer=3}, devices=[6], stage=2)\nplace({head=*}, devices=[6], stage=2)\n"
              "replicate({embed=*}, devices=[0, 1], zero=1)\nreplicate({layer=0..1}, devices=[0, 1], zero=1)\n"
              "replicate({layer=2}, devices=[2..5], zero=3)\nuse 1f1b(stages=stage, microbatches=mb)\n");
  EXPECT_TRUE(report.equal()) << print(report);
  EXPECT_THAT(report.not_compared, IsEmpty()) << print(report);
}

/// Every collective of values and gradients is the first that is named, if it is left out.
TEST(Diff, NamesEveryCollectiveThatIsLeftOut) {
  const std::string experts = "replicate({}, along=ep, zero=1)\nshard({experts=*}, along=ep)\n" + tensor_parallel;
  const std::string tokens = "replicate({}, along=cp)\nshard({}, along=cp, sequence=gather)\n",
                    heads = "replicate({}, along=cp)\nshard({}, along=cp, sequence=heads)\n";
  for (const auto& [model, directives] : {std::pair<std::string, std::string>{"one_key", vocabulary},
                                          {"reference", everything},
                                          {"mixture", experts},
                                          {"normed_keys", tokens},
                                          {"normed_keys", heads}}) {
    const bool along_tokens = directives == tokens || directives == heads;
    SCOPED_TRACE(model + "\n" + directives);
    const int slices = directives == experts ? 2 : 1;
    const std::string mesh = along_tokens ? "mesh(cp=2)\n" : fmt::format("mesh(ep={}, tp=2)\n", slices);
    const TpCase c{model, model, 2 * slices, slices, mesh + whole + directives, 1};
    const TrainableModel trained = model_of(c, 2);
    const PreparedTraining training = prepared(trained, c.text());
    TrainSettings once = settings(c);
    once.steps = 1;
    const DiffReport right = diffed(trained, *training.captured, training.plan, once);
    EXPECT_TRUE(right.equal()) << print(right);
    EXPECT_EQ(right.not_compared.empty(), !along_tokens) << print(right);
    const PlanTemplate& program = training.plan->templates.front();
    for (const PlannedOp& op : program.ops) {
      if (!op.communication.valid() || op.kind == OpKind::LocalSlice) continue;
      const Category of = program.buffers[op.writes[0]].category;
      if (of != Category::Activations && of != Category::Gradients) continue;
      // gradients of the tokens of a device are compared when they have been summed up
      const bool summed = along_tokens && of == Category::Activations && op.label.pass == Pass::B;
      TrainSettings faulty = once;
      faulty.communicator = [&](std::unique_ptr<Communicator> to) {
        return std::make_unique<LeavesOut>(std::move(to), op.communication.value);
      };
      const DiffReport wrong = diffed(trained, *training.captured, training.plan, faulty);
      ASSERT_TRUE(wrong.first) << describe(*training.plan, op.label);
      const Finding& first = wrong.first->finding;
      ASSERT_TRUE(first.op.valid()) << print(wrong);
      if (summed) {
        EXPECT_EQ(first.what, Finding::What::Gradient) << print(wrong);
        continue;
      }
      EXPECT_EQ(program_of(*training.plan, first.device).ops[first.op].communication, op.communication)
          << describe(*training.plan, op.label) << "\n"
          << print(wrong);
    }
  }
}

// ---- experts whose rows are sorted: which of them a device has is known when it runs

TpCase dropless(const std::string& directives, int devices = 2, const std::string& mesh = "mesh(ep=2)\n") {
  return {"dropless", "dropless", devices, 2, mesh + whole + "replicate({}, along=ep, zero=1)\n" + directives, 1};
}
const std::string few_rows = "shard({experts=*}, along=ep, buffer=0.25)\n";

DiffReport diff_of_rows(const TpCase& c, const std::function<void(TrainSettings&)>& plant = {},
                        const DiffOptions& options = {}) {
  const TrainableModel trained = model_of(c, 2);
  const PreparedTraining training = prepared(trained, c.text());
  TrainSettings how = settings(c);
  if (plant) plant(how);
  return diffed(trained, *training.captured, training.plan, how, options);
}

TEST(Diff, ComparesRowsThatARouterSends) {
  const TpCase halves{"",
                      "dropless",
                      4,
                      8,
                      "mesh(pp=2, ep=2)\nplace({}, along=pp, stages=2)\nreplicate({}, along=ep, zero=2)\n" + few_rows +
                          "use zb-h1(stages=stage, microbatches=mb)\n",
                      4};
  for (const TpCase& c : {dropless(few_rows), dropless("shard({experts=*}, along=ep, buffer=2)\n"),
                          dropless(few_rows + tensor_parallel, 4, "mesh(ep=2, tp=2)\n"),
                          dropless(few_rows + "recompute({layer=0})\n"), halves}) {
    SCOPED_TRACE(c.text());
    const DiffReport report = diff_of_rows(c);
    EXPECT_TRUE(report.equal()) << print(report);
    EXPECT_THAT(report.not_compared, IsEmpty()) << print(report);
    EXPECT_TRUE(diff_of_rows(c, {}, {{}, true}).equal());
  }
}

/// In computations of experts on device 1, after they have run.
std::function<void(TrainSettings&)> in_experts(Pass pass, std::function<void(const ComputationArguments&)> spoil) {
  return [=](TrainSettings& settings) {
    settings.computations = [=](Computations& in) {
      return intervene(in, [=](const ComputationSite& site, const ComputationArguments& given, const auto& as_usual) {
        as_usual(given);
        if (site.device == 1 && site.pass == pass && site.name.find("layer.1.experts") != std::string::npos)
          spoil(given);
      });
    };
  };
}

TEST(Diff, NamesTheExpertsWhoseRowsAreWrong) {
  const auto first_row = [](const ComputationArguments& given) {
    at::Tensor rows = given.writes.back();
    rows.narrow(0, 0, 1).mul_(1.001);
  };
  const auto weights = [](const ComputationArguments& given) { given.gradients[0].mul_(1.001); };
  for (const auto& [pass, spoil, what] :
       {std::tuple<Pass, std::function<void(const ComputationArguments&)>, Finding::What>{Pass::F, first_row,
                                                                                          Finding::What::Value},
        {Pass::B, first_row, Finding::What::Value},
        {Pass::B, weights, Finding::What::Contribution}}) {
    const DiffReport report =
        diff_of_rows(dropless("shard({experts=*}, along=ep, buffer=2)\n"), in_experts(pass, spoil));
    ASSERT_TRUE(report.first);
    EXPECT_EQ(report.first->finding.what, what) << print(report);
    EXPECT_EQ(report.first->finding.device, 1) << print(report);
    EXPECT_EQ(report.first->pass, name(pass)) << print(report);
    EXPECT_THAT(report.first->operation, HasSubstr("layer.1")) << print(report);
  }
}

/// One number of what a turn of exchanges brings is wrong, if it brings anything.
class ChangesRows : public PassingCommunicator {
 public:
  ChangesRows(std::unique_ptr<Communicator> to, bool further) : PassingCommunicator(std::move(to)), further_(further) {}
  void exchange(int group, int64_t sequence, int turn, std::span<const std::span<const std::byte>> out,
                std::span<const std::span<std::byte>> in) override {
    PassingCommunicator::exchange(group, sequence, turn, out, in);
    if (device() != 1 || done_ || further_ != (turn > 0) || in[0].empty()) return;
    reinterpret_cast<double*>(in[0].data())[0] += 1;
    done_ = true;
  }

 private:
  const bool further_;
  bool done_ = false;
};

TEST(Diff, NamesTheExchangeThatBringsOtherRows) {
  for (const bool further : {false, true}) {
    const DiffReport report = diff_of_rows(dropless(few_rows), [&](TrainSettings& settings) {
      settings.communicator = [&](std::unique_ptr<Communicator> to) {
        return std::make_unique<ChangesRows>(std::move(to), further);
      };
    });
    ASSERT_TRUE(report.first);
    EXPECT_THAT(report.first->operation, HasSubstr(further ? "rounds" : "all_to_all")) << print(report);
    EXPECT_EQ(report.first->pass, "F") << print(report);
  }
}

/// Changes a number of what one message brings.
class ChangesOne : public PassingCommunicator {
 public:
  ChangesOne(std::unique_ptr<Communicator> to, int64_t sequence)
      : PassingCommunicator(std::move(to)), sequence_(sequence) {}
  void receive(int from, int64_t sequence, std::span<std::byte> data) override {
    PassingCommunicator::receive(from, sequence, data);
    if (sequence == sequence_) reinterpret_cast<double*>(data.data())[0] += 1;
  }

 private:
  int64_t sequence_;
};

TEST(Diff, NamesATransfer) {
  int64_t changed = -1;
  const DiffReport report = diff_of({"dense"}, pipeline, [&](TrainSettings& settings, const Plan& plan) {
    for (const CommunicationId c : plan.communications.ids())
      if (plan.communications[c].transfer && plan.communications[c].label.slice == 2 && changed < 0) changed = c.value;
    settings.communicator = [&](std::unique_ptr<Communicator> to) {
      return std::make_unique<ChangesOne>(std::move(to), changed);
    };
  });
  ASSERT_TRUE(report.first);
  EXPECT_THAT(report.first->operation, HasSubstr("recv layer.1.add F mb=2")) << print(report);
  EXPECT_EQ(report.first->microbatch, "mb=2");
  EXPECT_EQ(report.first->line, "schedule.piper:3");
  EXPECT_THAT(print(report), HasSubstr("differs from one device"));
}

/// In one computation: what it writes, or what it adds to gradients.
std::function<void(TrainSettings&, const Plan&)> in_one(const std::string& chunk, Pass pass, int device, int64_t sample,
                                                        std::function<void(const ComputationArguments&)> spoil) {
  return [=](TrainSettings& settings, const Plan&) {
    settings.computations = [=](Computations& in) {
      return intervene(in, [=](const ComputationSite& site, const ComputationArguments& given, const auto& as_usual) {
        as_usual(given);
        if (site.name == chunk && site.pass == pass && site.device == device && given.slice.first_sample == sample)
          spoil(given);
      });
    };
  };
}

TEST(Diff, NamesAComputation) {
  const auto value = in_one("layer.2", Pass::F, 2, 4, [](const auto& given) { given.writes.back().mul_(1.001); });
  const DiffReport report = diff_of({"dense"}, pipeline, value);
  ASSERT_TRUE(report.first);
  EXPECT_EQ(report.first->what, "value layer.2.add") << print(report);
  EXPECT_EQ(report.first->made_by, "add");
  EXPECT_EQ(report.first->chunk, "layer.2");
  EXPECT_EQ(report.first->microbatch, "mb=1");
  EXPECT_EQ(report.first->finding.device, 2);
  EXPECT_NEAR(report.first->finding.measure.relative(), 1e-3, 1e-6);
  EXPECT_THAT(report.first->agreed, testing::Contains("layer.2.attention.0.add"));
  EXPECT_THAT(report.first->differed, IsEmpty());
}

TEST(Diff, NamesAContribution) {
  const auto gradient = in_one("layer.1", Pass::B, 1, 10, [](const auto& given) { given.gradients[0].mul_(2); });
  const DiffReport report = diff_of({"dense"}, pipeline, gradient);
  ASSERT_TRUE(report.first);
  EXPECT_EQ(report.first->finding.what, Finding::What::Contribution) << print(report);
  EXPECT_EQ(report.first->chunk, "layer.1");
  EXPECT_EQ(report.first->pass, "B");
  EXPECT_EQ(report.first->microbatch, "mb=2");
  EXPECT_EQ(report.first->finding.device, 1);
}

TEST(Diff, IsTheSameHoweverThreadsCome) {
  const auto value = in_one("layer.2", Pass::F, 3, 2, [](const auto& given) { given.writes.back().mul_(1.001); });
  const std::string once = print(diff_of({"dense"}, pipeline, value));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(print(diff_of({"dense"}, pipeline, value)), once);
}

TEST(Diff, FindsWhatIsNotFinite) {
  const DiffOptions finding{{}, true};
  EXPECT_TRUE(diff_of({"dense"}, pipeline, {}, finding).equal());
  const auto nan = in_one("layer.2", Pass::B, 2, 8, [](const auto& given) {
    given.writes.back().fill_(std::numeric_limits<double>::quiet_NaN());
  });
  const DiffReport planted = diff_of({"dense"}, pipeline, nan, finding);
  ASSERT_TRUE(planted.first);
  EXPECT_EQ(planted.first->chunk, "layer.2") << print(planted);
  EXPECT_EQ(planted.first->pass, "B");
  EXPECT_EQ(planted.first->microbatch, "mb=2");

  const PreparedTraining training = prepare({"dense"}, pipeline);
  TrainableModel large = model_of(Subject{"dense"});
  large.initialize = [usual = large.initialize](const std::string& name, at::Tensor& all) {
    usual(name, all);
    if (name == "layer.3.mlp.up.weight" || name == "layer.3.mlp.down.weight") all.mul_(1e200);
  };
  const DiffReport overflow = diffed(large, *training.captured, training.plan, usual_settings({"dense"}), finding);
  ASSERT_TRUE(overflow.first);
  EXPECT_EQ(overflow.first->chunk, "layer.3") << print(overflow);
  EXPECT_EQ(overflow.first->pass, "F");
  EXPECT_THAT(overflow.first->made_by, testing::StartsWith("aten::")) << print(overflow);
  EXPECT_THAT(print(overflow), HasSubstr("is not finite"));
}

Result<DiffReport> against(const std::string& ours, const std::string& theirs,
                           const std::string& model = "arch = \"llama3\"\nkv_heads = 2\nffn = 24\n") {
  const SourceFilePtr config =
      make_source("c.toml", "[model]\nname = \"x\"\nlayers = 2\nhidden = 16\nheads = 4\nvocab = 24\nseq = 6\n" + model +
                                "[step]\nbatch = 8\nweights = \"float64\"\ngradients = \"float64\"\n[data]\nkind = "
                                "\"reference\"\n");
  DiffRequest request;
  PIPER_TRY(request.schedule, parse_schedule(make_source("a.piper", ours)));
  PIPER_TRY(request.against, parse_schedule(make_source("b.piper", theirs)));
  PIPER_TRY(const TrainConfig train, parse_train_config(config));
  request.against_name = "b.piper";
  request.steps = 2;
  return diff_training(config, train, request);
}

TEST(Diff, ComparesTwoSchedules) {
  const std::string two = "mesh(pp=2, dp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, along=pp, stages=2)\n";
  const std::string cut_two =
      "mesh(dp=2, tp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, mesh={})\n"
      "replicate({}, along=dp, zero=2)\nshard({layer=*}, along=tp, sequence=on)\n";
  auto report = against(two + "replicate({}, along=dp, zero=1)\n", two + "replicate({}, along=dp, zero=3)\n");
  ASSERT_TRUE(report) << render(report.error());
  EXPECT_TRUE(report->equal()) << print(*report);
  EXPECT_THAT(report->not_compared, IsEmpty());
  EXPECT_THAT(print(*report), HasSubstr("equal to b.piper"));

  report = against(two + "replicate({}, along=dp, zero=1)\n", cut_two);
  ASSERT_TRUE(report) << render(report.error());
  EXPECT_TRUE(report->equal()) << print(*report);

  report = against(two + "replicate({}, along=dp, zero=1)\n", in_turn(2));  // other slices
  ASSERT_TRUE(report) << render(report.error());
  EXPECT_TRUE(report->equal()) << print(*report);
  EXPECT_THAT(print(*report), HasSubstr("gradients of values belong to slices, and the slices are others"));
}

/// As if the capacity of experts were decided after the exchange, for the tokens of both devices together: other tokens
/// are dropped, and that is the first that differs.
TEST(Diff, NamesExpertsWithTheCapacityOfOtherSlices) {
  const std::string mixture = "arch = \"reference-moe\"\nexperts = 4\ntop_k = 2\ncapacity_factor = 1.0\n",
                    divided = "mesh(ep=2)\nplace({}, mesh={})\nreplicate({}, along=ep)\nshard({experts=*}, along=ep)\n";
  auto report = against(divided, in_turn(2), mixture);
  ASSERT_TRUE(report) << render(report.error());
  EXPECT_TRUE(report->equal()) << print(*report);
  report = against(divided, in_turn(1), mixture);
  ASSERT_TRUE(report) << render(report.error());
  ASSERT_TRUE(report->first);
  EXPECT_EQ(report->first->step, 0);
  EXPECT_THAT(report->first->chunk, HasSubstr("layer.0")) << print(*report);
  EXPECT_EQ(report->first->pass, "F");
  EXPECT_THAT(report->first->agreed, testing::Contains("layer.0.attention.0.add")) << print(*report);
  EXPECT_THAT(report->first->differed, IsEmpty());
}

/// All devices have the one head of keys: each has a part of the sum that is its gradient, in whichever half of the
/// backward.
TEST(Diff, GradientsOfWholeParametersInTheSecondHalfOfABackward) {
  const SourceFilePtr config = make_source(
      "c.toml",
      "[model]\nname = \"x\"\narch = \"llama3\"\nlayers = 2\nhidden = 16\nheads = 4\nkv_heads = 1\nffn = 24\n"
      "vocab = 24\nseq = 6\n[step]\nbatch = 4\nweights = \"float64\"\ngradients = \"float64\"\n[data]\nkind = "
      "\"reference\"\n");
  DiffRequest request;
  request.schedule =
      must(parse_schedule(make_source("a.piper",
                                      "mesh(pp=2, tp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, along=pp, stages=2)\n"
                                      "shard({layer=*}, along=tp)\nuse zb-h1(stages=stage, microbatches=mb)\n")));
  request.steps = 1;
  auto report = diff_training(config, must(parse_train_config(config)), request);
  ASSERT_TRUE(report) << render(report.error());
  EXPECT_TRUE(report->equal()) << print(*report);
}

}  // namespace
}  // namespace piper
