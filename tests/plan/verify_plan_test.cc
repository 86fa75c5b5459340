// Every kind of fault, planted one at a time in a small plan, is found and the culprit named; without it the plan
// passes.
#include "plan/verify_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "../compiled_examples.h"
#include "plan/memory_report.h"
#include "plan/plan_text.h"
#include "plan/stream_clocks.h"

namespace piper {
namespace {

Plan parsed(const std::string& text) {
  auto plan = parse_plan(make_source("plan", text));
  if (!plan) throw std::runtime_error(render(plan.error()));
  return *std::move(plan);
}

/// Everything the message says, notes included.
std::string words_of(Checked& result) {
  return result ? "no error" : render(result.error());
}

/// Two devices, two streams; group 0 is device 0, group 1 is device 1, partition 0 both.
const std::string plan_header =
    "plan small costs=0\n"
    "stream compute\nstream comm\n"
    "name a\nname x\nname y\n"
    "origin \"small.piper:3\" \"place({}, devices=[0, 1])\"\n"
    "group [0]\ngroup [1]\n"
    "partition 2 [0, 1]\npartition 1 [0]\n";
const std::string x_to_1 = "communication x transfer 0 -> 1 bytes=8\n";
const std::string y_to_0 = "communication y transfer 1 -> 0 bytes=8\n";
const std::string both_ways = x_to_1 + y_to_0;
const std::string two_collectives = "communication x over 0 bytes=8\ncommunication y over 0 bytes=8\n";
const std::string weights = "buffer 0 weights 8 x persistent\nbuffer 1 weights 8 y persistent\n";
/// Device 1 of a transfer of x from 0 to 1, without fault.
const std::string receives_x =
    "template [1]\nbuffer 0 activations 8 x\n"
    "op 0 recv x on comm communication=0 writes(%0)\n"
    "op 1 run a on compute waits(0) reads(%0) frees(%0)\n";

struct Planted {
  std::string name;
  std::string sound, faulty;  // what follows the plan_header
  ErrorCode code;
  std::vector<std::string> culprits;  // all in the message or its notes
};
void PrintTo(const Planted& planted, std::ostream* out) {
  *out << planted.name;
}

/// A body with one line replaced.
std::string with(std::string text, const std::string& line, const std::string& by) {
  const size_t at = text.find(line);
  if (at == std::string::npos) throw std::runtime_error("no such line: " + line);
  return text.replace(at, line.size(), by);
}

std::vector<Planted> deadlocks() {
  std::vector<Planted> out;
  const std::string ends = "template [0]\n" + weights +
                           "op 0 send x on comm communication=0 reads(%0) origin=0\n"
                           "op 1 recv y on comm communication=1 writes(%1)\n"
                           "template [1]\n" +
                           weights;
  out.push_back({"SendsInOppositeOrder",
                 both_ways + ends +
                     "op 0 recv x on comm communication=0 writes(%0)\nop 1 send y on comm communication=1 reads(%1)\n",
                 both_ways + ends +
                     "op 0 send y on comm communication=1 reads(%1)\nop 1 recv x on comm communication=0 writes(%0)\n",
                 ErrorCode::E401,
                 {"op 0 send x on comm (small.piper:3)", "op 1 recv y on comm"}});
  const std::string first =
      "op 0 all_reduce x on comm communication=0 writes(%0)\n"
      "op 1 all_reduce y on compute communication=1 waits(0) writes(%1)\n";
  const std::string swapped =
      "op 0 all_reduce y on compute communication=1 writes(%1)\n"
      "op 1 all_reduce x on comm communication=0 waits(0) writes(%0)\n";
  const std::string start = two_collectives + "template [0]\n" + weights + first + "template [1]\n" + weights;
  out.push_back({"CollectivesSwappedAcrossStreams",
                 start + first,
                 start + swapped,
                 ErrorCode::E401,
                 {"all_reduce x on comm", "all_reduce y on compute"}});
  // a backend that serialises its streams hangs even without the waits
  out.push_back({"CollectivesSwappedWithoutWaits",
                 start + first,
                 start + with(swapped, " waits(0)", ""),
                 ErrorCode::E401,
                 {"all_reduce x on comm", "all_reduce y on compute"}});
  const std::string head = both_ways + "template [0]\n" + weights;
  const std::string one =
      "op 0 recv x on comm communication=0 writes(%0)\nop 1 run a on compute waits(0) reads(%0) writes(%1)\n"
      "op 2 send y on comm communication=1 waits(1) reads(%1)\n";
  const std::string sends_first =
      "op 0 run a on compute writes(%0)\nop 1 send x on comm communication=0 waits(0) reads(%0)\n"
      "op 2 recv y on comm communication=1 writes(%1)\n";
  const std::string waits_first =
      "op 0 recv y on comm communication=1 writes(%1)\nop 1 run a on compute waits(0) reads(%1) writes(%0)\n"
      "op 2 send x on comm communication=0 waits(1) reads(%0)\n";
  out.push_back({"WaitCycleThroughTransfers",
                 head + sends_first + "template [1]\n" + weights + one,
                 head + waits_first + "template [1]\n" + weights + one,
                 ErrorCode::E401,
                 {"op 0 recv y on comm", "op 2 send x on comm"}});
  return out;
}

std::vector<Planted> orders_and_races() {
  std::vector<Planted> out;
  const std::string collectives = two_collectives + "template [0]\n" + weights +
                                  "op 0 all_reduce x on comm communication=0 writes(%0)\n"
                                  "op 1 all_reduce y on comm communication=1 writes(%1)\n"
                                  "template [1]\n" +
                                  weights;
  out.push_back({"CollectiveOrder",
                 collectives + "op 0 all_reduce x on comm communication=0 writes(%0)\nop 1 all_reduce y on comm "
                               "communication=1 writes(%1)\n",
                 collectives + "op 0 all_reduce y on comm communication=1 writes(%1)\nop 1 all_reduce x on comm "
                               "communication=0 writes(%0)\n",
                 ErrorCode::E402,
                 {"device 0: op 0 all_reduce x", "device 1: op 0 all_reduce y"}});
  const std::string read_after_write = x_to_1 +
                                       "template [0]\nbuffer 0 activations 8 x\n"
                                       "op 0 run a on compute writes(%0)\n"
                                       "op 1 send x on comm communication=0 waits(0) reads(%0) frees(%0)\n" +
                                       receives_x;
  out.push_back(
      {"ReadAfterWrite",
       read_after_write,
       with(read_after_write, " waits(0) reads(%0) frees(%0)\ntemplate", " reads(%0) frees(%0)\ntemplate"),
       ErrorCode::E403,
       {"device 0: op 0 run a on compute", "device 0: op 1 send x on comm", "touch x", "op 1 must wait for op 0"}});
  const std::string write_after_read = x_to_1 + "template [0]\n" + weights +
                                       "op 0 send x on comm communication=0 reads(%0)\n"
                                       "op 1 update a on compute waits(0) writes(%0)\n" +
                                       receives_x;
  out.push_back({"WriteAfterRead",
                 write_after_read,
                 with(write_after_read, " waits(0)", ""),
                 ErrorCode::E403,
                 {"op 0 send x on comm", "op 1 update a on compute"}});
  const std::string write_after_write = x_to_1 + "template [0]\n" + weights +
                                        "op 0 send x on comm communication=0 reads(%0)\n"
                                        "template [1]\n" +
                                        weights +
                                        "op 0 recv x on comm communication=0 writes(%0)\n"
                                        "op 1 run a on compute waits(0) writes(%0)\n";
  out.push_back({"WriteAfterWrite",
                 write_after_write,
                 with(write_after_write, " waits(0)", ""),
                 ErrorCode::E403,
                 {"device 1: op 0 recv x on comm", "device 1: op 1 run a on compute"}});
  // an earlier reader on a third stream is not forgotten when a later one is known
  const std::string two_readers =
      "stream other\nname b\ngroup [0]\ntemplate [0]\nbuffer 0 activations 8 b\n"
      "op 0 run b on compute writes(%0)\nop 1 run b on other waits(0) reads(%0)\n"
      "op 2 run b on compute reads(%0)\nop 3 run b on compute waits(1) writes(%0) frees(%0)\n";
  out.push_back({"EarlierReaderOnAnotherStream",
                 "plan m costs=0\nstream compute\n" + two_readers,
                 "plan m costs=0\nstream compute\n" + with(two_readers, " waits(1)", ""),
                 ErrorCode::E403,
                 {"op 1 run b on other", "op 3 run b"}});
  const std::string freed = x_to_1 +
                            "template [0]\nbuffer 0 activations 8 x\n"
                            "op 0 run a on compute writes(%0)\n"
                            "op 1 run a on compute reads(%0)\n"
                            "op 2 send x on comm communication=0 waits(1) reads(%0) frees(%0)\n" +
                            receives_x;
  out.push_back({"UseAfterFree",
                 freed,
                 with(with(freed, "op 1 run a on compute reads(%0)", "op 1 run a on compute reads(%0) frees(%0)"),
                      "reads(%0) frees(%0)\ntemplate", "reads(%0)\ntemplate"),
                 ErrorCode::E404,
                 {"op 2 send x on comm", "freed by device 0: op 1 run a"}});
  return out;
}

std::vector<Planted> memory_orders() {
  std::vector<Planted> out;
  const std::string text = y_to_0 +
                           "template [0]\nbuffer 0 activations 8 x\nbuffer 1 activations 8 y\n"
                           "op 0 run a on compute writes(%0) frees(%0)\n"
                           "op 1 recv y on comm communication=0 waits(0) writes(%1) frees(%1)\n"
                           "template [1]\nbuffer 0 weights 8 y persistent\n"
                           "op 0 send y on comm communication=0 reads(%0)\n";
  out.push_back({"BytesReusedAcrossStreams",
                 text,
                 with(text, " waits(0)", ""),
                 ErrorCode::E406,
                 {"op 1 recv y on comm", "last used by device 0: op 0 run a on compute", "op 1 must wait for op 0"}});
  const std::string temporaries =
      "template [0]\nbuffer 0 weights 8 x persistent\nbuffer 1 temporaries 100 x\nbuffer 2 temporaries 60 x\n"
      "op 0 run a on compute reads(%0) writes(%1) frees(%1)\n"
      "op 1 run a on comm waits(0) reads(%0) writes(%2) frees(%2)\n";
  out.push_back({"TemporariesReusedAcrossStreams",
                 temporaries,
                 with(temporaries, " waits(0)", ""),
                 ErrorCode::E406,
                 {"op 1 run a on comm", "op 0 run a on compute"}});
  return out;
}

std::vector<Planted> matchings() {
  std::vector<Planted> out;
  const std::string sends_x = "template [0]\n" + weights + "op 0 send x on comm communication=0 reads(%0)\n";
  const std::string idle = "template [1]\n" + weights + "op 0 run a on compute reads(%0)\n";
  out.push_back({"UnmatchedSend",
                 x_to_1 + sends_x + receives_x,
                 x_to_1 + sends_x + idle,
                 ErrorCode::E407,
                 {"device 1 must receive", "(x)"}});
  out.push_back({"ReceiveWithoutSend",
                 x_to_1 + sends_x + receives_x,
                 x_to_1 + with(idle, "[1]", "[0]") + receives_x,
                 ErrorCode::E407,
                 {"device 0 must send", "(x)"}});
  out.push_back({"SentTwice",
                 x_to_1 + sends_x + receives_x,
                 x_to_1 + sends_x + "op 1 send x on comm communication=0 reads(%0)\n" + receives_x,
                 ErrorCode::E407,
                 {"device 0 wants to send twice (x)"}});
  const std::string one = "communication x over 0 bytes=8\n";
  const std::string takes_part = "op 0 all_reduce x on comm communication=0 writes(%0)\n";
  const std::string first = one + "template [0]\n" + weights + takes_part;
  const std::string sound = first + "template [1]\n" + weights + takes_part;
  out.push_back({"MemberMissing", sound, first + idle, ErrorCode::E407, {"device 1 must take part", "(x)"}});
  out.push_back({"NotAMember",
                 with(first, "over 0", "over 1") + idle,
                 with(sound, "over 0", "over 1"),
                 ErrorCode::E407,
                 {"device 1 is no member", "(x)"}});
  out.push_back(
      {"MemberWithoutPlan", sound, first, ErrorCode::E407, {"device 1 takes part in a communication but has no plan"}});
  out.push_back({"DifferentKinds",
                 sound,
                 first + with("template [1]\n" + weights + takes_part, "all_reduce", "all_gather"),
                 ErrorCode::E407,
                 {"device 0 wants to all_reduce and device 1 to all_gather", "(x)"}});
  out.push_back({"ReceivesInsteadOfTakingPart",
                 sound,
                 first + with("template [1]\n" + weights + takes_part, "all_reduce", "recv"),
                 ErrorCode::E407,
                 {"device 0 wants to all_reduce and device 1 to recv", "(x)"}});
  out.push_back({"TemplatePartlyInAGroup",
                 x_to_1 + sends_x + receives_x,
                 x_to_1 + "template [0, 1]\n" + weights +
                     "op 0 send x on comm communication=0 reads(%0)\nop 1 recv x on comm communication=0 writes(%1)\n",
                 ErrorCode::E409,
                 {"only some of the devices [0, 1]", "x"}});
  return out;
}

/// Rows for experts: every member makes as many rounds as the counts of one gather say.
std::vector<Planted> numbers_of_rounds() {
  const std::string communications =
      "communication x over 0 bytes=8 buffer=1.5\ncommunication a over 0 bytes=8 buffer=1.5\n"
      "communication y over 0 bytes=8 buffer=1.5\n";
  const std::string device =
      "buffer 0 activations 8 x\nbuffer 1 activations 8 a\nbuffer 2 weights 8 y persistent\n"
      "op 0 all_gather x on comm communication=0 writes(%0)\n"
      "op 1 all_gather a on comm communication=1 writes(%1)\n"
      "op 2 rounds y on comm communication=2 reads(%0) writes(%2) frees(%0, %1)\n";
  const std::string first = communications + "template [0]\n" + device + "template [1]\n", sound = first + device;
  return {{"RoundsWithoutCounts",
           sound,
           first + with(device, "reads(%0)", "reads(%2)"),
           ErrorCode::E407,
           {"device 1: op 2 rounds y on comm does not read how many rows"}},
          {"RoundsWithAnotherBuffer",
           sound,
           with(sound, "x over 0 bytes=8 buffer=1.5", "x over 0 bytes=8 buffer=2"),
           ErrorCode::E407,
           {"device 0: op 2 rounds y on comm does not read how many rows"}},
          {"RoundsByOtherCounts",
           sound,
           first + with(device, "reads(%0)", "reads(%1)"),
           ErrorCode::E407,
           {"device 1: op 2 rounds y on comm reads other counts"}}};
}

std::vector<Planted> structures() {
  std::vector<Planted> out;
  const std::string sound =
      "template [0]\nbuffer 0 activations 8 x\n"
      "op 0 run a on compute writes(%0)\nop 1 run a on comm waits(0) reads(%0) frees(%0)\n";
  const auto add = [&](std::string name, std::string faulty, std::vector<std::string> culprits) {
    out.push_back({std::move(name), sound, std::move(faulty), ErrorCode::E408, std::move(culprits)});
  };
  add("WaitsForALaterOp", with(sound, "compute writes", "compute waits(1) writes"),
      {"device 0: op 0 ", "waits for op 1"});
  add("WaitsForItself", with(sound, "compute writes", "compute waits(0) writes"),
      {"device 0: op 0 ", "waits for op 0"});
  add("WaitsOnItsOwnStream", with(sound, "on comm", "on compute"), {"device 0: op 1 ", "waits for op 0"});
  add("FreedTwice", with(sound, "frees(%0)", "frees(%0, %0)"), {"device 0: op 1 ", "frees buffer 0 a second time"});
  add("NeverFreed", with(sound, " frees(%0)", ""),
      {"buffer 0 (x) of device 0 is never freed", "last used by device 0: op 1 "});
  add("NeverUsed", with(sound, "op 0", "buffer 1 activations 8 y\nop 0") + "op 2 run a on comm frees(%1)\n",
      {"buffer 1 (y) of device 0 is freed but never used"});
  add("PersistentFreed", with(sound, "8 x", "8 x persistent"), {"device 0: op 1 ", "frees the persistent buffer 0"});
  add("DeviceInTwoTemplates", sound + "template [1, 0]\n", {"device 0 has two plans"});
  add("DeviceTwiceInATemplate", with(sound, "[0]", "[0, 0]"), {"template 0 has a device twice"});
  add("DeviceTwiceInAGroup", with("partition 2 [0, 1]\n" + sound, "[0, 1]", "[1, 1]"),
      {"partition 2 has a device twice"});
  add("PartsDoNotDivide", "partition 2 [0, 1, 2]\n" + sound, {"partition 2 does not divide"});
  add("CommunicationWithoutNumber", with(sound, "run a on comm", "all_reduce a on comm"),
      {"device 0: op 1 ", "must name a communication"});
  add("NumberWithoutCommunication", x_to_1 + with(sound, "waits(0)", "communication=0 waits(0)"),
      {"device 0: op 1 ", "must name a communication"});
  add("NoDevices", "", {"the plan has no devices"});
  return out;
}

class PlantedFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFault, IsFoundAndTheCulpritNamed) {
  const auto text = [](const std::string& body) { return body.starts_with("plan") ? body : plan_header + body; };
  auto sound = verify(parsed(text(GetParam().sound)));
  EXPECT_TRUE(sound) << words_of(sound);
  auto faulty = verify(parsed(text(GetParam().faulty)));
  ASSERT_FALSE(faulty);
  EXPECT_EQ(name(faulty.error().code), name(GetParam().code)) << words_of(faulty);
  for (const std::string& culprit : GetParam().culprits)
    EXPECT_NE(words_of(faulty).find(culprit), std::string::npos) << culprit << " in:\n" << words_of(faulty);
}
std::string name_of_fault(const testing::TestParamInfo<Planted>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Deadlocks, PlantedFault, testing::ValuesIn(deadlocks()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(OrdersAndRaces, PlantedFault, testing::ValuesIn(orders_and_races()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(MemoryOrders, PlantedFault, testing::ValuesIn(memory_orders()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(Matchings, PlantedFault, testing::ValuesIn(matchings()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(NumbersOfRounds, PlantedFault, testing::ValuesIn(numbers_of_rounds()), name_of_fault);
INSTANTIATE_TEST_SUITE_P(Structures, PlantedFault, testing::ValuesIn(structures()), name_of_fault);

/// Indices that the text form cannot even write.
TEST(VerifyPlan, IndicesOutOfRangeAreFound) {
  const Plan good = parsed(plan_header + x_to_1 + "template [0]\n" + weights +
                           "op 0 send x on comm communication=0 reads(%0)\n" + receives_x);
  ASSERT_TRUE(verify(good));
  const std::vector<std::function<void(Plan&)>> faults = {
      [](Plan& p) { p.templates.back().ops.back().reads = {BufferId(1)}; },
      [](Plan& p) { p.templates.back().ops.back().reads = {BufferId()}; },
      [](Plan& p) { p.templates.back().ops.back().frees = {BufferId(7)}; },
      [](Plan& p) { p.templates.front().ops.front().stream = PlanStreamId(2); },
      [](Plan& p) { p.templates.front().ops.front().stream = {}; },
      [](Plan& p) { p.templates.front().ops.front().label.name = NameId(3); },
      [](Plan& p) { p.templates.front().ops.front().label.slice = 1; },
      [](Plan& p) { p.templates.front().ops.front().communication = CommunicationId(1); },
      [](Plan& p) { p.templates.front().ops.front().origin = DirectiveId(1); },
      [](Plan& p) { p.templates.front().ops.front().origin = DirectiveId(-2); },
      [](Plan& p) { p.templates.front().buffers.front().bytes = -1; },
      [](Plan& p) { p.templates.front().buffers.front().label.name = {}; },
      [](Plan& p) { p.templates.back().ops.back().waits = {OpId()}; },
      [](Plan& p) { p.templates.back().devices = {}; },
      [](Plan& p) { p.templates.back().devices = {-1}; },
      [](Plan& p) { p.communications.front().to = GroupId(2); },
      [](Plan& p) { p.communications.front().from = {}; },
      [](Plan& p) { p.communications.front().bytes = -1; },
      [](Plan& p) { p.partitions.front().part_size = 0; },
      [](Plan& p) { p.groups.front() = {}; },
      [](Plan& p) {
        p.dims = {{"mb", 0}};
      },
      [](Plan& p) {
        p.dims = {{"a", 1 << 30}, {"b", 1 << 30}, {"c", 1 << 30}};
      },
  };
  for (size_t f = 0; f < faults.size(); ++f) {
    Plan bad = good;
    faults[f](bad);
    auto result = verify(bad);
    ASSERT_FALSE(result) << "fault " << f;
    EXPECT_EQ(name(result.error().code), "E408") << "fault " << f << ": " << words_of(result);
  }
}

Cluster with_memory(int64_t bytes) {
  Cluster cluster;
  cluster.kinds[0].memory = bytes;
  return cluster;
}

TEST(VerifyPlan, CapacityIsChecked) {
  const Plan plan = parsed(plan_header +
                           "template [1]\nbuffer 0 weights 100 x persistent\nbuffer 1 activations 50 y\n"
                           "op 0 run a on compute reads(%0)\nop 1 run a on compute writes(%1) frees(%1) origin=0\n");
  EXPECT_TRUE(check_capacity(plan, with_memory(150)));
  EXPECT_TRUE(check_capacity(plan, Cluster{}));
  auto result = check_capacity(plan, with_memory(149));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::E405);
  EXPECT_NE(words_of(result).find("device 1 needs 150 B at its peak; it has 149 B"), std::string::npos)
      << words_of(result);
  EXPECT_NE(words_of(result).find("op 1 run a on compute (small.piper:3)"), std::string::npos) << words_of(result);
}

// ---- systematic faults in compiled plans

class CompiledPlanFaults : public testing::TestWithParam<examples::Example> {
 protected:
  void SetUp() override {
    auto compiled = examples::compile(GetParam());
    ASSERT_TRUE(compiled) << render(compiled.error());
    plan_ = std::move(compiled->plan);
  }
  Plan plan_;
};

/// Orders that no buffer shows: a gather that prefetch holds back, a recomputation that waits until its gradient has
/// arrived, an update that needs the step's scalars, a backward that waits until other gradients have been reduced.
bool orders_only(const PlannedOp& op, const PlannedOp& before) {
  const bool makes_gradients = op.kind == OpKind::Run && (op.label.pass == Pass::B || op.label.pass == Pass::BW);
  if (makes_gradients) return before.kind == OpKind::ReduceScatter;
  if (op.kind == OpKind::AllGather) return before.kind == OpKind::Run;
  if (op.kind == OpKind::Update) return before.kind == OpKind::AllReduce;
  return op.kind == OpKind::Run && op.label.pass == Pass::R;
}

/// Whether the other waits and the streams already say that `wait` has ended.
bool implied(const Plan& plan, const PlanTemplate& t, OpId op, OpId wait) {
  StreamClocks clocks(plan, t);
  for (const OpId i : IdRange<OpId>{OpId(0), OpId(op.value + 1)}) {
    clocks.begin(i);
    for (const OpId w : t.ops[i].waits) clocks.merge(i, w);
  }
  return clocks.knows(op, wait);
}

/// What becomes of the plan without one wait: the error that finds it, or why there is none.
std::string outcome_without(const Plan& plan, TemplateId t, OpId op, size_t wait) {
  Plan faulty = plan;
  auto& waits = faulty.templates[t].ops[op].waits;
  const OpId missing = waits[wait];
  waits.erase(waits.begin() + static_cast<long>(wait));
  if (implied(faulty, faulty.templates[t], op, missing)) return "redundant";
  if (auto result = verify(faulty); !result) {
    EXPECT_NE(words_of(result).find(fmt::format("device {}: op", plan.templates[t].devices[0])), std::string::npos);
    return std::string(name(result.error().code));
  }
  const auto& ops = plan.templates[t].ops;
  return orders_only(ops[op], ops[missing]) ? "order_only" : "not found";
}

TEST_P(CompiledPlanFaults, EveryWaitIsNeeded) {
  const std::set<std::string> expected = {"E401", "E403", "E406", "order_only"};
  std::map<std::string, int> outcomes;
  for (const TemplateId t : plan_.templates.ids()) {
    const auto& ops = plan_.templates[t].ops;
    for (const OpId i : ops.ids()) {
      for (size_t w = 0; w < ops[i].waits.size(); ++w) {
        const std::string outcome = outcome_without(plan_, t, i, w);
        ++outcomes[outcome];
        EXPECT_TRUE(expected.contains(outcome))
            << outcome << ": " << describe(plan_, plan_.templates[t], i) << " waits for op " << ops[i].waits[w].value;
      }
    }
  }
  for (const auto& [outcome, count] : outcomes) RecordProperty(outcome, count);
}

/// The operations of one template with i and i + 1 exchanged, waits renumbered.
PlanTemplate swapped(PlanTemplate t, OpId i) {
  const OpId next(i.value + 1);
  std::swap(t.ops[i], t.ops[next]);
  for (PlannedOp& op : t.ops)
    for (OpId& wait : op.waits) wait = wait == i ? next : wait == next ? i : wait;
  return t;
}

TEST_P(CompiledPlanFaults, SwappedCommunicationIsFound) {
  Table<CommunicationId, std::set<TemplateId>> members(plan_.communications.size());
  for (const TemplateId t : plan_.templates.ids())
    for (const PlannedOp& op : plan_.templates[t].ops)
      if (op.communication.valid()) members[op.communication].insert(t);
  int found = 0, legal = 0;
  for (const TemplateId t : plan_.templates.ids()) {
    const auto& ops = plan_.templates[t].ops;
    for (const OpId i : ops.ids()) {
      const OpId next(i.value + 1);
      if (!ops.contains(next)) continue;
      const CommunicationId a = ops[i].communication, b = ops[next].communication;
      if (!a.valid() || !b.valid() || a == b) continue;
      Plan faulty = plan_;
      faulty.templates[t] = swapped(plan_.templates[t], i);
      auto result = verify(faulty);
      std::set<TemplateId> others = members[a];
      std::erase_if(others, [&](TemplateId o) { return o == t || !members[b].contains(o); });
      (result ? legal : found)++;
      // devices of one template swap together; what no other device shares may be issued in any order
      EXPECT_TRUE(others.empty() || !result) << describe(plan_, plan_.templates[t], i);
    }
  }
  RecordProperty("found", found);
  RecordProperty("legal", legal);
}

/// By definition: for every operation, everything between its first touch and its free.
TEST_P(CompiledPlanFaults, PeakIsWhatANaiveCountSays) {
  for (const PlanTemplate& t : plan_.templates) {
    int64_t peak = 0;
    std::array<int64_t, category_count> at_peak{};
    for (const OpId i : t.ops.ids()) {
      std::array<int64_t, category_count> now{};
      for (const BufferId b : t.buffers.ids()) {
        const auto names = [&](const std::vector<BufferId>& list) {
          return std::find(list.begin(), list.end(), b) != list.end();
        };
        bool touched = false, freed = false;
        for (const OpId j : IdRange<OpId>{OpId(0), i}) {
          touched = touched || names(t.ops[j].reads) || names(t.ops[j].writes);
          freed = freed || names(t.ops[j].frees);
        }
        touched = touched || names(t.ops[i].reads) || names(t.ops[i].writes);
        if (t.buffers[b].persistent || (touched && !freed))
          now[static_cast<size_t>(t.buffers[b].category)] += t.buffers[b].bytes;
      }
      const int64_t total = std::accumulate(now.begin(), now.end(), int64_t{0});
      if (total <= peak) continue;
      peak = total;
      at_peak = now;
    }
    const MemoryPeak reported = memory_peak(plan_, t);
    EXPECT_EQ(reported.total, peak);
    EXPECT_EQ(reported.by_category, at_peak);
    EXPECT_TRUE(check_capacity(Plan(plan_), with_memory(std::numeric_limits<int64_t>::max())));
  }
}
INSTANTIATE_TEST_SUITE_P(Examples, CompiledPlanFaults, testing::ValuesIn(examples::all()), examples::name_of);

}  // namespace
}  // namespace piper
