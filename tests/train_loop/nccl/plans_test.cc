// Plans of several devices over NCCL, with something in its place: every device is alone in its process, as a thread.
// They compute what threads of one process compute, bit by bit, and what they call fits together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm_nccl/stand_in.h"
#include "models/configurations.h"
#include "schedule/schedule_text.h"
#include "train_loop/covering.h"
#include "train_loop/legs.h"
#include "train_loop/nccl/run_apart.h"

namespace piper {
namespace {

using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

auto over(NcclStandIn& nccl) {
  return [&](std::unique_ptr<Communicator> host) { return nccl.communicator(std::move(host)); };
}

void expect_equal_to_threads(const TrainableModel& model, const CapturedModel& captured,
                             const std::shared_ptr<const Plan>& plan, const TrainSettings& settings) {
  const auto devices = static_cast<int>(template_of_device(*plan).size());
  const Trained threads = train(model, captured, plan, settings);
  NcclStandIn nccl(devices, seconds(60));
  const Ran ran = run_apart(over(nccl), model, captured, plan, settings);
  EXPECT_THAT(ran.problems, testing::Each(""));
  EXPECT_THAT(mistakes(nccl.records()), IsEmpty());
  EXPECT_EQ(nccl.aborted(), 0);
  for (int d = 0; d < devices; ++d) {
    const Trained& mine = ran.devices[static_cast<size_t>(d)];
    EXPECT_EQ(mine.losses, threads.losses) << d;
    EXPECT_EQ(mine.norms, threads.norms) << d;
    EXPECT_EQ(mine.bits, (std::map<int, uint64_t>{{d, threads.bits.at(d)}})) << d;
  }
}

class NcclPlans : public testing::TestWithParam<size_t> {};

TEST_P(NcclPlans, EqualThreads) {
  const Combination& c = pairwise_covering().trained[GetParam()];
  if (c.grid.devices() == 1) GTEST_SKIP() << "one device";
  SCOPED_TRACE(c.describe() + "\n" + c.schedule());
  const Leg leg = legs_of(c)[0];
  const Subject subject{c.kind, c.layers(), leg.dtype, leg.optimizer};
  const CapturedModel& model = captured(subject, {subject_batch / c.slices()});
  Result<Compiled> compiled = compile_for(model, c.schedule());
  ASSERT_TRUE(compiled) << render(compiled.error());
  expect_equal_to_threads(model_of(subject), model, std::make_shared<const Plan>(compiled->plan),
                          usual_settings(subject));
}
INSTANTIATE_TEST_SUITE_P(Pairwise, NcclPlans, testing::Range(size_t{0}, pairwise_covering().trained.size()),
                         [](const auto& info) { return fmt::format("{:03}", info.param); });

struct Way {
  std::string name, schedule;
  std::string arch = "reference-moe";
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}
std::string piped(const std::string& timeline, const std::string& place, const std::string& mesh = "pp=4",
                  const std::string& more = "") {
  return fmt::format(
      "mesh({})\nsplit(batch, parts=8, as=mb)\nplace({{}}, along=pp, {})\n{}use {}(stages=stage, "
      "microbatches=mb)\n",
      mesh, place, more, timeline);
}
const std::string in_two = "split(batch, parts=2, as=mb)\nplace({}, mesh={})\n";
const Way ways[] = {
    {"one_f_one_b", piped("1f1b", "stages=4")},
    {"dualpipev", piped("dualpipev", "stages=8, shape=v")},
    {"zero_1", "mesh(dp=4)\n" + in_two + "replicate({}, along=dp, zero=1, bucket=1KB)\n"},
    {"zero_3", "mesh(dp=4)\n" + in_two + "replicate({}, along=dp, zero=3, bucket=1KB)\n"},
    {"experts", "mesh(ep=4)\n" + in_two + "replicate({}, along=ep, zero=2)\nshard({experts=*}, along=ep)\n"},
    {"cut", "mesh(tp=2)\n" + in_two + "shard({layer=*}, along=tp)\n"},
    {"all_at_once", piped("1f1b", "stages=2", "pp=2, dp=2, tp=2",
                          "replicate({}, along=dp, zero=3, bucket=1KB)\nshard({layer=*}, along=tp)\n")},
    {"tokens",
     "mesh(dp=2, cp=2)\n" + in_two + "replicate({}, along=[dp, cp], zero=3, bucket=1KB)\n" +
         "shard({}, along=cp, sequence=gather, regather=on)\n",
     "reference"},
    {"heads", "mesh(dp=2, cp=2)\n" + in_two + "replicate({}, along=[dp, cp])\nshard({}, along=cp, sequence=heads)\n",
     "reference"},
    {"tokens_in_order",
     piped("1f1b", "stages=2", "pp=2, cp=2",
           "replicate({}, along=cp)\nshard({}, along=cp, sequence=gather, order=contiguous)\n"),
     "reference"},
};

TrainableModel small_model(const std::string& arch = "reference-moe") {
  const std::string experts = "experts = 4\ntop_k = 2\ncapacity_factor = 1.25\n";
  return built(
      fmt::format("[model]\narch = \"{}\"\nhidden = 16\nheads = 4\nvocab = 32\nseq = 4\nlayers = 8\n{}\n"
                  "[step]\nbatch = 16\nweights = \"float32\"\ngradients = \"float32\"\noptimizer = \"adamw\"\n",
                  arch, arch == "reference" ? "" : experts),
      BuildOn::Meta);
}
PreparedTraining prepared(const TrainableModel& model, const std::string& schedule) {
  auto parsed = parse_schedule(make_source("step.piper", schedule));
  if (!parsed) throw std::runtime_error(render(parsed.error()));
  auto out = prepare_training(model, *parsed);
  if (!out) throw std::runtime_error(render(out.error()));
  return *out;
}
class NcclWays : public testing::TestWithParam<Way> {};

TEST_P(NcclWays, EqualThreads) {
  SCOPED_TRACE(GetParam().schedule);
  const TrainableModel model = small_model(GetParam().arch);
  const PreparedTraining ready = prepared(model, GetParam().schedule);
  expect_equal_to_threads(model, *ready.captured, ready.plan, TrainSettings());
}
INSTANTIATE_TEST_SUITE_P(All, NcclWays, testing::ValuesIn(ways), [](const auto& info) { return info.param.name; });

/// What a test changes at the `nth` call of this kind on a device.
struct Fault {
  NcclRecord::Kind kind;
  bool skip;  // otherwise another count
};
std::vector<std::string> found(const Way& way, const Fault& fault) {
  const TrainableModel model = small_model();
  const PreparedTraining ready = prepared(model, way.schedule);
  NcclStandIn nccl(static_cast<int>(template_of_device(*ready.plan).size()), seconds(60));
  nccl.plant = [&, calls = std::make_shared<std::atomic<int>>(0)](int device, NcclRecord& call) {
    if (device != 1 || call.kind != fault.kind || calls->fetch_add(1) != 2) return true;
    call.count -= 1;
    return !fault.skip;
  };
  const Ran ran = run_apart(over(nccl), model, *ready.captured, ready.plan, TrainSettings());
  EXPECT_THAT(ran.problems, Contains(Not("")));
  EXPECT_EQ(nccl.destroyed(), 0);
  return mistakes(nccl.records());
}

TEST(NcclFaults, AreFound) {
  for (const bool skip : {true, false}) {
    EXPECT_THAT(found(ways[0], {NcclRecord::Kind::Send, skip}), Contains(HasSubstr("device 1 sends")));
    EXPECT_THAT(found(ways[2], {NcclRecord::Kind::ReduceScatter, skip}), Contains(HasSubstr("device 1")));
    EXPECT_THAT(found(ways[4], {NcclRecord::Kind::Receive, skip}), Contains(HasSubstr("device 1 receives")));
  }
}

/// A process that is gone before its communicators are made: the others say which operation needs it.
TEST(NcclFaults, WhoIsGoneAtTheBeginningIsNamed) {
  const TrainableModel model = small_model();
  const PreparedTraining ready = prepared(model, ways[2].schedule);
  NcclStandIn nccl(4, std::chrono::milliseconds(500));
  nccl.plant = [](int device, const NcclRecord& call) {
    if (device == 2 && call.kind == NcclRecord::Kind::Init) throw std::runtime_error("killed");
    return true;
  };
  const Ran ran = run_apart(over(nccl), model, *ready.captured, ready.plan, TrainSettings());
  EXPECT_EQ(ran.problems[2], "killed");
  for (const size_t d : {0, 1, 3})
    EXPECT_THAT(ran.problems[d],
                testing::MatchesRegex(fmt::format("device {}: op .* on .*step.piper:.*: cannot make a communicator of "
                                                  "NCCL: not all of devices .* have come in time",
                                                  d)));
}

}  // namespace
}  // namespace piper
